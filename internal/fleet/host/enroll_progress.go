package host

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
)

// Enrolling is how far a host has come with its one-time token.
type Enrolling struct {
	ExpiresAt time.Time
	Expired   bool       // and it was not used
	UsedAt    *time.Time // nil = not yet
	Host      *Detail    // who used it; nil = nobody yet
}

// Enrollment returns how far the host of an enrolment token of who's organisation has come. Fault: NotFound.
func (x *Hosts) Enrollment(ctx context.Context, who account.Principal, e id.Enrollment) (Enrolling, error) {
	r, err := x.db.Q.GetEnrollment(ctx, e, who.Org)
	if db.NoRows(err) {
		return Enrolling{}, NotFound()
	}
	if err != nil {
		return Enrolling{}, fmt.Errorf("host: read enrolment %s: %w", e, err)
	}
	p := Enrolling{ExpiresAt: r.ExpiresAt, Expired: r.Expired, UsedAt: r.UsedAt}
	if r.HostID.IsZero() {
		return p, nil
	}
	d, err := get(ctx, x.db.Q, who.Org, r.HostID)
	if err != nil {
		return Enrolling{}, err
	}
	p.Host = &d
	return p, nil
}
