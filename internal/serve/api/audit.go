package api

import (
	"context"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/id"
)

// auditView is an entry of an audit log.
type auditView struct {
	ID      string         `json:"id"`
	At      string         `json:"at"`
	Org     string         `json:"org_id,omitempty" doc:"of who acted"`
	OrgName string         `json:"org_name,omitempty"`
	User    string         `json:"user_id,omitempty"`
	Email   string         `json:"email,omitempty"`
	Token   string         `json:"token_id,omitempty"`
	Action  string         `json:"action"`
	Object  string         `json:"object,omitempty"`
	Detail  map[string]any `json:"detail" doc:"of a shell, say: node, key, kind"`
	Address string         `json:"address,omitempty"`
}

func viewAudit(f audit.Found) auditView {
	return auditView{f.ID.String(), f.At.UTC().Format("2006-01-02T15:04:05.000000Z"), f.Org.String(), f.OrgName,
		f.User.String(), f.Email, f.Token.String(),
		f.Action, f.Object, f.Detail, f.Address}
}

// ownAuditLog is what the caller's org did.
func (a *API) ownAuditLog(ctx context.Context, p account.Principal, in *struct {
	Page
	Q      string `query:"q" maxLength:"200" doc:"an object's id, the beginning of the e-mail address of who acted, or a part of the details"`
	Action string `query:"action" maxLength:"100" doc:"a word such as payout.stop or cluster.shell, or its noun: payout"`
}) (list[auditView], error) {
	before, err := cursor[id.Audit](in.Page)
	if err != nil {
		return list[auditView]{}, err
	}
	rows, err := a.accounts.AuditLog(ctx, p, audit.Filter{Action: in.Action, Words: in.Q}, before, in.Limit+1)
	return cut(rows, in.Limit, viewAudit, func(f audit.Found) string { return f.ID.String() }), err
}

// auditLog is the whole platform's.
func (a *API) auditLog(ctx context.Context, p account.Principal, in *struct {
	Page
	Q      string `query:"q" maxLength:"200" doc:"an object's id, the beginning of the e-mail address of who acted, or a part of the details"`
	Action string `query:"action" maxLength:"100" doc:"a word such as payout.stop or cluster.shell, or its noun: payout"`
	Org    string `query:"org_id" maxLength:"100" doc:"what this organisation did, and what was done to it"`
}) (list[auditView], error) {
	org, err := orgFilter(in.Org)
	if err != nil {
		return list[auditView]{}, err
	}
	before, err := cursor[id.Audit](in.Page)
	if err != nil {
		return list[auditView]{}, err
	}
	rows, err := a.statements.SearchAudit(ctx, p, audit.Filter{
		Org:    org,
		Action: in.Action,
		Words:  in.Q,
	}, before, in.Limit+1)
	return cut(rows, in.Limit, viewAudit, func(f audit.Found) string { return f.ID.String() }), err
}
