package audit

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
)

// nameObjects fills in what people call the objects of the events, with one query for all of them.
func nameObjects(ctx context.Context, q *dbq.Queries, list []Found) error {
	var p dbq.AuditObjectNamesParams
	keys := make([]string, len(list))
	for i, e := range list {
		keys[i] = objectKey(&p, e.Object)
	}
	if len(p.Clusters)+len(p.Hosts)+len(p.Orgs)+len(p.Sessions) == 0 {
		return nil
	}
	rows, err := q.AuditObjectNames(ctx, p)
	if err != nil {
		return fmt.Errorf("name the objects of the audit log: %w", err)
	}
	named := make(map[string]dbq.AuditObjectNamesRow, len(rows))
	for _, r := range rows {
		named[r.Kind+r.ID] = r
	}
	for i := range list {
		if r, ok := named[keys[i]]; ok && keys[i] != "" {
			list[i].Name, list[i].Browser = r.Name, r.Browser
		}
	}
	return nil
}

// objectKey adds the id of an object that has a name to the parameters, and returns the key of its row; "" for others.
func objectKey(p *dbq.AuditObjectNamesParams, object string) string {
	kind, _, _ := strings.Cut(object, "_")
	var at pgtype.UUID
	switch kind {
	case "cl":
		at = add[id.Cluster](&p.Clusters, object)
	case "host":
		at = add[id.Host](&p.Hosts, object)
	case "org":
		at = add[id.Org](&p.Orgs, object)
	case "ses":
		at = add[id.Session](&p.Sessions, object)
	}
	if !at.Valid {
		return ""
	}
	return kind + at.String()
}

// add appends the id that a text writes to a list. What is no such id is left out, and the result is not valid.
func add[T any, P interface {
	*T
	UnmarshalText([]byte) error
	UUIDValue() (pgtype.UUID, error)
}](list *[]pgtype.UUID, object string) pgtype.UUID {
	var x T
	if err := P(&x).UnmarshalText([]byte(object)); err != nil {
		return pgtype.UUID{}
	}
	at, err := P(&x).UUIDValue()
	if err != nil || !at.Valid {
		return pgtype.UUID{}
	}
	*list = append(*list, at)
	return at
}
