// Package audit is the trail of who did what: one row per act, written in the transaction of the act, never changed.
//
// A row names the org, the user and the token by id, the act by a stable word ("cluster.rent"), and the object by its
// prefixed id. Details are small facts for people; a secret, a password or an environment never goes in.
package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
)

// Event is one act. Zero ids mean "none": the platform itself acted, or nobody was signed in.
type Event struct {
	Org     id.Org
	User    id.User
	Token   id.Token
	Action  string         // noun.verb
	Object  string         // prefixed id, or ""
	Detail  map[string]any // small, never secrets
	Address string         // where the call came from
}

// Entry is an event as it was recorded.
type Entry struct {
	ID id.Audit
	At time.Time
	Event
}

// Record writes the event in tx, so that an act and its trail stand or fall together.
func Record(ctx context.Context, tx *db.Tx, e Event) error {
	detail := []byte("{}")
	if len(e.Detail) > 0 {
		var err error
		if detail, err = json.Marshal(e.Detail); err != nil {
			return fmt.Errorf("audit %s: %w", e.Action, err)
		}
	}
	err := tx.Q.InsertAuditEvent(ctx, dbq.InsertAuditEventParams{
		ID: id.New[id.Audit](), OrgID: e.Org, UserID: e.User, TokenID: e.Token,
		Action: e.Action, Object: e.Object, Detail: detail, Address: e.Address,
	})
	if err != nil {
		return fmt.Errorf("audit %s: %w", e.Action, err)
	}
	return nil
}

// List is an org's trail, newest first, at most limit entries, those before the given one (zero: from the newest).
func List(ctx context.Context, q *dbq.Queries, org id.Org, before id.Audit, limit int) ([]Entry, error) {
	cursor, err := before.UUIDValue()
	if err != nil {
		return nil, err
	}
	rows, err := q.ListAuditEvents(ctx, org, cursor, int32(limit))
	if err != nil {
		return nil, fmt.Errorf("list the audit trail of %s: %w", org, err)
	}
	out := make([]Entry, len(rows))
	for i, r := range rows {
		out[i] = Entry{ID: r.ID, At: r.CreatedAt, Event: Event{
			Org: r.OrgID, User: r.UserID, Token: r.TokenID, Action: r.Action, Object: r.Object, Address: r.Address,
		}}
		if err := json.Unmarshal(r.Detail, &out[i].Detail); err != nil {
			return nil, fmt.Errorf("audit entry %s: %w", r.ID, err)
		}
	}
	return out, nil
}
