package account

import (
	"context"
	"fmt"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
)

// Party is one side of a document.
type Party = client.Party

// PartyOf returns the org as a document that is issued now names it: by its legal details, or by its name while it has
// given none (known is false).
func PartyOf(ctx context.Context, q *dbq.Queries, org id.Org) (p Party, known bool, err error) {
	l, err := LegalOf(ctx, q, org)
	if err != nil {
		return Party{}, false, err
	}
	if l.Known() {
		return Party{Name: l.Name, Address: l.Address, Country: l.Country, VATID: l.VATID}, true, nil
	}
	name, err := q.OrgName(ctx, org)
	if err != nil {
		return Party{}, false, fmt.Errorf("name of %s: %w", org, err)
	}
	return Party{Name: name, Address: []string{}}, false, nil
}
