package api

import (
	"context"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/id"
)

func viewAudit(f audit.Found) client.AuditEvent {
	return client.AuditEvent{
		ID:      f.ID.String(),
		At:      f.At.UTC().Format("2006-01-02T15:04:05.000000Z"),
		Org:     f.Org.String(),
		OrgName: f.OrgName,
		User:    f.User.String(),
		Email:   f.Email,
		Token:   f.Token.String(),
		Action:  f.Action,
		Object:  f.Object,
		Detail:  f.Detail,
		Address: f.Address,
	}
}

// auditLog lists what the caller's organisation did.
func (a orgAPI) auditLog(ctx context.Context, p account.Principal,
	in *client.AuditQuery) (list[client.AuditEvent], error) {
	before, err := cursor[id.Audit](in.PageOf)
	if err != nil {
		return list[client.AuditEvent]{}, err
	}
	rows, err := a.accounts.AuditLog(ctx, p, audit.Filter{Action: in.Action, Words: in.Q}, before, in.Limit+1)
	return cut(rows, in.Limit, viewAudit, func(f audit.Found) string { return f.ID.String() }), err
}

// auditLog lists what all organisations did.
func (a adminAPI) auditLog(ctx context.Context, p account.Principal,
	in *client.AllAuditQuery) (list[client.AuditEvent], error) {
	org, err := orgFilter(in.Org)
	if err != nil {
		return list[client.AuditEvent]{}, err
	}
	before, err := cursor[id.Audit](in.PageOf)
	if err != nil {
		return list[client.AuditEvent]{}, err
	}
	rows, err := a.statements.SearchAudit(ctx, p, audit.Filter{
		Org:    org,
		Action: in.Action,
		Words:  in.Q,
	}, before, in.Limit+1)
	return cut(rows, in.Limit, viewAudit, func(f audit.Found) string { return f.ID.String() }), err
}
