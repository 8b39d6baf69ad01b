package statement

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/document"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Document is a receipt, credit note or self-billing document as a list shows it.
type Document = client.Document

// OrgDocuments returns documents of an organisation that match the filter, newest first, at most limit. Fault: Invalid.
func (s *Statements) OrgDocuments(ctx context.Context, org id.Org, f document.Filter, limit int) ([]Document, error) {
	f.Org = org
	return documents(ctx, s.d.Q, f, limit)
}

// AllDocuments is OrgDocuments for admins: of all organisations unless the filter names one. Faults: Invalid,
// Forbidden.
func (s *Statements) AllDocuments(ctx context.Context, who account.Principal, f document.Filter,
	limit int) ([]Document, error) {
	if err := account.RequireStaff(who); err != nil {
		return nil, err
	}
	return documents(ctx, s.d.Q, f, limit)
}

// OrgDocument returns one document of an organisation and the numbers of those that correct it. Fault: NotFound.
func (s *Statements) OrgDocument(ctx context.Context, org id.Org, number string) (Document, []string, error) {
	return oneDocument(ctx, s.d.Q, org, number)
}

// AnyDocument is OrgDocument for admins, of any organisation. Faults: NotFound, Forbidden.
func (s *Statements) AnyDocument(ctx context.Context, who account.Principal,
	number string) (Document, []string, error) {
	if err := account.RequireStaff(who); err != nil {
		return Document{}, nil, err
	}
	return oneDocument(ctx, s.d.Q, id.Org{}, number)
}

func oneDocument(ctx context.Context, q *dbq.Queries, org id.Org, number string) (Document, []string, error) {
	e, err := document.Numbered(ctx, q, org, number)
	if err != nil {
		return Document{}, nil, err
	}
	corrected, err := document.Corrections(ctx, q, e.Issued)
	if err != nil {
		return Document{}, nil, err
	}
	out, err := viewDocuments(ctx, q, []document.Entry{e})
	if err != nil {
		return Document{}, nil, err
	}
	return out[0], corrected, nil
}

func documents(ctx context.Context, q *dbq.Queries, f document.Filter, limit int) ([]Document, error) {
	rows, err := document.Register(ctx, q, f, limit)
	if err != nil {
		return nil, err
	}
	return viewDocuments(ctx, q, rows)
}

// documentContent is what all documents have in their content.
type documentContent struct {
	Erased   bool       `json:"erased"`
	Total    money.Nano `json:"total"`
	Currency string     `json:"currency"`
	Customer struct {
		Name string `json:"name"`
	} `json:"customer"`
	Supplier struct {
		Name string `json:"name"`
	} `json:"supplier"`
}

func viewDocuments(ctx context.Context, q *dbq.Queries, rows []document.Entry) ([]Document, error) {
	topups := map[string]id.TopUp{} // by key
	var ids []pgtype.UUID
	for _, e := range rows {
		if e.Series != document.Receipt {
			continue
		}
		t, err := id.Parse[id.TopUp](strings.TrimPrefix(e.Key, "receipt:"))
		if err != nil {
			return nil, fmt.Errorf("document %s: %w", e.Number, err)
		}
		topups[e.Key] = t
		ids = append(ids, pgtype.UUID{Bytes: t.UUID(), Valid: true})
	}
	receipts := map[id.TopUp][]byte{}
	if len(ids) > 0 {
		found, err := q.Receipts(ctx, ids)
		if err != nil {
			return nil, fmt.Errorf("read receipts: %w", err)
		}
		for _, r := range found {
			receipts[r.TopupID] = r.Content
		}
	}
	out := make([]Document, len(rows))
	for i, e := range rows {
		content := e.Content
		out[i] = Document{
			Number:   e.Number,
			Series:   e.Series,
			Org:      e.Org,
			OrgName:  e.OrgName,
			IssuedAt: e.IssuedAt,
			Date:     e.Date(),
			Zone:     e.Zone,
			Corrects: e.Corrects,
		}
		if t, ok := topups[e.Key]; ok {
			out[i].TopUp, content = &t, receipts[t]
		}
		var c documentContent
		if err := json.Unmarshal(content, &c); err != nil {
			return nil, fmt.Errorf("document %s: %w", e.Number, err)
		}
		out[i].Erased, out[i].Total, out[i].Currency, out[i].Party = c.Erased, c.Total, c.Currency, c.Customer.Name+
			c.Supplier.Name
	}
	return out, nil
}
