package account

import (
	"context"
	"fmt"

	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
)

// Party is one side of a document.
type Party struct {
	Name    string   `json:"name"`
	Address []string `json:"address"` // lines
	Country string   `json:"country"` // ISO 3166-1 alpha-2; "" where the address says it
	VATID   string   `json:"vat_id"`  // "": none
}

// PartyOf is the org as a document of now names it: by its legal details, or while it has not told them (told false) by
// its name.
func PartyOf(ctx context.Context, q *dbq.Queries, org id.Org) (p Party, told bool, err error) {
	l, err := LegalOf(ctx, q, org)
	if err != nil {
		return Party{}, false, err
	}
	if l.Known() {
		return Party{l.Name, l.Address, l.Country, l.VATID}, true, nil
	}
	name, err := q.OrgName(ctx, org)
	if err != nil {
		return Party{}, false, fmt.Errorf("name of %s: %w", org, err)
	}
	return Party{Name: name, Address: []string{}}, false, nil
}
