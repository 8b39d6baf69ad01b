package account

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// Legals keeps who orgs are before the law.
type Legals struct{ *core }

// Legal is who an org is before the law, as documents name it. The zero value: it has no legal details.
type Legal struct {
	Name      string
	Address   []string // lines, without the country
	Country   string   // ISO 3166-1 alpha-2
	VATID     string   // upper case, without spaces; "" = none
	ChangedAt time.Time
}

// Known reports whether the org has said who it is.
func (l Legal) Known() bool { return l.Name != "" }

const (
	maxAddressLines = 6
	maxLegalLine    = 120 // characters
)

// LegalOf returns the org's legal details; the zero value if there are none.
func LegalOf(ctx context.Context, q *dbq.Queries, org id.Org) (Legal, error) {
	r, err := q.OrgLegal(ctx, org)
	if db.NoRows(err) {
		return Legal{}, nil
	}
	if err != nil {
		return Legal{}, fmt.Errorf("legal details of %s: %w", org, err)
	}
	return Legal{r.Name, r.Address, r.Country, r.VatID, r.ChangedAt}, nil
}

// Of returns the legal details of the principal's org. It is the zero Legal while there are none.
func (ls *Legals) Of(ctx context.Context, p Principal) (Legal, error) {
	return LegalOf(ctx, ls.db.Q, p.Org)
}

// Set replaces the org's legal details and returns them as they are stored. Faults: Invalid, every wrong field at
// once.
func (ls *Legals) Set(ctx context.Context, p Principal, l Legal) (Legal, error) {
	l, err := l.normal()
	if err != nil {
		return Legal{}, err
	}
	err = ls.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		var err error
		l.ChangedAt, err = tx.Q.SetOrgLegal(ctx, dbq.SetOrgLegalParams{
			OrgID:   p.Org,
			Name:    l.Name,
			Address: l.Address,
			Country: l.Country,
			VatID:   l.VATID,
		})
		if err != nil {
			return fmt.Errorf("set legal details: %w", err)
		}
		// The trail is never changed, so what has to be erasable does not go in.
		return audit.Record(ctx, tx, p.Event("org.legal_set", p.Org.String(), map[string]any{
			"country": l.Country,
			"vat_id":  l.VATID != "",
		}))
	})
	return l, err
}

// Erase deletes the org's legal details. Deleting them again is no error.
func (ls *Legals) Erase(ctx context.Context, p Principal) error {
	return ls.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		n, err := tx.Q.EraseOrgLegal(ctx, p.Org)
		if err != nil {
			return fmt.Errorf("erase legal details: %w", err)
		}
		if n == 0 {
			return nil
		}
		return audit.Record(ctx, tx, p.Event("org.legal_erase", p.Org.String(), nil))
	})
}

// normal is l as it is kept, or all that is wrong with it.
func (l Legal) normal() (Legal, error) {
	var bad fault.Fields
	l.Name = strings.TrimSpace(l.Name)
	if l.Name == "" {
		bad.Add("name", "is missing: the name in the register, or your own")
	}
	checkLegalLine(&bad, "name", l.Name)
	var lines []string
	for _, s := range l.Address {
		if s = strings.TrimSpace(s); s != "" {
			lines = append(lines, s)
			checkLegalLine(&bad, "address", s)
		}
	}
	l.Address = lines
	if n := len(lines); n == 0 || n > maxAddressLines {
		bad.Add("address", "has to have 1 to %d lines, such as street, postcode and town", maxAddressLines)
	}
	l.Country = strings.ToUpper(strings.TrimSpace(l.Country))
	if !IsCountry(l.Country) {
		bad.Add("country", "must be the two letters of ISO 3166-1, such as DE, FR, GB or US")
		return l, bad.Err() // whether a VAT id is right depends on it
	}
	var err error
	if l.VATID, err = NormalVATID(l.Country, l.VATID); err != nil {
		bad.Add("vat_id", "%s", err)
	}
	return l, bad.Err()
}

func checkLegalLine(bad *fault.Fields, location, s string) {
	switch {
	case !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl):
		bad.Add(location, "holds characters that cannot be printed")
	case utf8.RuneCountInString(s) > maxLegalLine:
		bad.Add(location, "has to have at most %d characters a line", maxLegalLine)
	}
}
