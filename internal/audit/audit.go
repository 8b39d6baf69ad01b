// Package audit is the audit log: one row per act, written in the act's transaction, never changed.
//
// A row names the org, the user and the token by id, the act by a stable word ("cluster.rent"), and the object by its
// prefixed id. Details are small facts for people; a secret, a password or an environment never goes in.
package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
)

// Event is one act. Zero ids mean "none": the platform itself acted, or no one was signed in.
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

// Record writes the event in tx, so that an act and its event are committed together or not at all.
func Record(ctx context.Context, tx *db.Tx, e Event) error {
	row, err := e.row()
	if err == nil {
		err = tx.Q.InsertAuditEvent(ctx, row)
	}
	if err != nil {
		return fmt.Errorf("audit %s: %w", e.Action, err)
	}
	return nil
}

// Queue queues what Record does.
func Queue(b *pgx.Batch, e Event) error {
	row, err := e.row()
	if err != nil {
		return fmt.Errorf("audit %s: %w", e.Action, err)
	}
	db.Write(b, (*dbq.Queries).InsertAuditEvent, row)
	return nil
}

func (e Event) row() (dbq.InsertAuditEventParams, error) {
	detail := []byte("{}")
	var err error
	if len(e.Detail) > 0 {
		detail, err = json.Marshal(e.Detail)
	}
	return dbq.InsertAuditEventParams{
		ID: id.New[id.Audit](), OrgID: e.Org, UserID: e.User, TokenID: e.Token,
		Action: e.Action, Object: e.Object, Detail: detail, Address: e.Address,
	}, err
}

// Filter is what Search looks for; zero fields match everything.
type Filter struct {
	Org    id.Org // Search: what it did, and what was done to it; Own: whose log
	Action string // a word such as "payout.stop", or its noun: "payout"
	Words  string // an object's id, the beginning of the e-mail of who acted, or a part of the details
}

// Found is an event with the names of people. They are "" for people who were deleted, and for the platform
// itself.
type Found struct {
	Entry
	Email, OrgName string
	// Name is what people call the object: the name of a cluster, a host or an organisation, the user of a session. It is
	// "" for other objects and for those that no longer exist. Browser is the User-Agent header of a session.
	Name, Browser string
}

// Search returns the whole platform's audit log, newest first, at most limit entries, those before the given one (zero:
// from the newest). The caller has checked that the principal is an admin.
func Search(ctx context.Context, q *dbq.Queries, f Filter, before id.Audit, limit int) ([]Found, error) {
	cursor, err := before.UUIDValue()
	if err != nil {
		return nil, err
	}
	org, err := f.Org.UUIDValue()
	if err != nil {
		return nil, err
	}
	rows, err := q.SearchAuditEvents(ctx, dbq.SearchAuditEventsParams{Before: cursor, Org: org, OrgNameID: f.Org.String(),
		Action: strings.TrimSpace(f.Action), Words: strings.TrimSpace(f.Words), MaxRows: int32(limit)})
	if err != nil {
		return nil, fmt.Errorf("search the audit log: %w", err)
	}
	out := make([]Found, len(rows))
	for i, r := range rows {
		e, err := entryOf(r.ID, r.CreatedAt, Event{
			Org: r.OrgID, User: r.UserID, Token: r.TokenID, Action: r.Action, Object: r.Object, Address: r.Address}, r.Detail)
		if err != nil {
			return nil, err
		}
		out[i] = Found{Entry: e, Email: r.Email, OrgName: r.OrgName}
	}
	return out, nameObjects(ctx, q, out)
}

// Own is what f.Org itself did, newest first, at most limit entries, those before the given one (zero: from the
// newest): for its own people. What others did to it is in their log, and only Search finds that.
func Own(ctx context.Context, q *dbq.Queries, f Filter, before id.Audit, limit int) ([]Found, error) {
	cursor, err := before.UUIDValue()
	if err != nil {
		return nil, err
	}
	rows, err := q.OrgAuditEvents(ctx, dbq.OrgAuditEventsParams{
		OrgID:   f.Org,
		Before:  cursor,
		Action:  strings.TrimSpace(f.Action),
		Words:   strings.TrimSpace(f.Words),
		MaxRows: int32(limit),
	})
	if err != nil {
		return nil, fmt.Errorf("read the audit log of %s: %w", f.Org, err)
	}
	out := make([]Found, len(rows))
	for i, r := range rows {
		e, err := entryOf(r.ID, r.CreatedAt, Event{
			Org: r.OrgID, User: r.UserID, Token: r.TokenID, Action: r.Action, Object: r.Object, Address: r.Address}, r.Detail)
		if err != nil {
			return nil, err
		}
		out[i] = Found{Entry: e, Email: r.Email}
	}
	return out, nameObjects(ctx, q, out)
}

// List returns an org's audit log, newest first, at most limit entries, those before the given one (zero: from the
// newest).
func List(ctx context.Context, q *dbq.Queries, org id.Org, before id.Audit, limit int) ([]Entry, error) {
	cursor, err := before.UUIDValue()
	if err != nil {
		return nil, err
	}
	rows, err := q.ListAuditEvents(ctx, org, cursor, int32(limit))
	if err != nil {
		return nil, fmt.Errorf("list read the audit log of %s: %w", org, err)
	}
	out := make([]Entry, len(rows))
	for i, r := range rows {
		if out[i], err = entryOf(r.ID, r.CreatedAt, Event{Org: r.OrgID, User: r.UserID, Token: r.TokenID, Action: r.Action,
			Object: r.Object, Address: r.Address}, r.Detail); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// entryOf completes an event that was read with its details, which are kept as JSON.
func entryOf(of id.Audit, at time.Time, e Event, detail []byte) (Entry, error) {
	if err := json.Unmarshal(detail, &e.Detail); err != nil {
		return Entry{}, fmt.Errorf("audit entry %s: %w", of, err)
	}
	return Entry{ID: of, At: at, Event: e}, nil
}
