package host

import (
	"context"
	"fmt"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// Change is an operator's change to a host's name, agent channel or data caps. Nil fields stay unchanged. Package
// market changes the price and terms.
type Change struct {
	Name    *string
	Channel *string // the agent's: StableChannel, OffChannel, or another channel that exists
	DataCap DataCap
}

// Apply applies the change to one host of who's organisation, in the caller's transaction; see market.ChangeHost.
// Faults: NotFound; Invalid; Conflict if the organisation has another host of that name.
func (c Change) Apply(ctx context.Context, tx *db.Tx, b *bus.Bus, who account.Principal, host id.Host) error {
	if c.Name != nil {
		if err := rename(ctx, tx, who.Org, host, *c.Name); err != nil {
			return err
		}
	}
	if c.Channel != nil {
		if err := followChannel(ctx, tx, who.Org, host, *c.Channel); err != nil {
			return err
		}
	}
	if c.DataCap == (DataCap{}) {
		return nil
	}
	return setDataCap(ctx, tx, b, who, host, c.DataCap)
}

func rename(ctx context.Context, tx *db.Tx, org id.Org, host id.Host, name string) error {
	if !namePattern.MatchString(name) {
		return fault.InvalidField("name", "want 1 to 63 lower-case letters, digits, dots and hyphens")
	}
	if _, err := lockOwn(ctx, tx, org, host); err != nil {
		return err
	}
	err := tx.Q.RenameHost(ctx, name, host)
	if db.IsUnique(err, "host_name") {
		return orNameTaken(nil, name)
	}
	if err != nil {
		return fmt.Errorf("rename %s: %w", host, err)
	}
	return nil
}
