// Package notify notifies people: with notices in the dashboard, one per cause, and with mail.
//
// A notice is written in the transaction of the fact that it reports. Its key names the cause ("runway:1h:cl_…"); a
// second notice with the same key in the same org is dropped, so that code that detects a fact can add a notice every
// time. What warns, went wrong or runs out is also mailed to the org's owners: a mail is a row, written once with the
// note that its notice was mailed, and goes out at least once, whatever dies in between. Mail holds no secrets but
// links that prove whose the address is: good once, for a day.
package notify

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/text"
)

// Severity is how loud a notice is.
type Severity string

const (
	Info Severity = "info" // good to know
	Warn Severity = "warn" // something will go wrong unless the reader acts
	Bad  Severity = "bad"  // something went wrong
)

// Notice is one thing an org should know.
type Notice struct {
	Org      id.Org
	Key      string // one notice per cause
	Severity Severity
	Title    string // a sentence
	Body     string // what happened, what it cost, what to do
	Object   string // prefixed id of what it is about, or ""
	Forecast bool   // warns of what may still happen to the object: Withdraw deletes it
}

// Delivered is a notice as it stands in the dashboard.
type Delivered struct {
	ID     id.Notice
	At     time.Time
	ReadAt *time.Time
	Notice
}

// The longest title and body of a notice, in bytes. Both may quote what a host or a foreign server answered.
const (
	maxTitle = 500
	maxBody  = 16 << 10
)

// Add writes the notice unless its org has one with this key; added reports whether it did.
func Add(ctx context.Context, tx *db.Tx, n Notice) (added bool, err error) {
	rows, err := tx.Q.InsertNotice(ctx, dbq.InsertNoticeParams{
		ID: id.New[id.Notice](), OrgID: n.Org, DedupeKey: n.Key, Severity: string(n.Severity),
		Title: text.Clip(n.Title, maxTitle), Body: text.Clip(n.Body, maxBody), Object: n.Object, Forecast: n.Forecast,
	})
	if err != nil {
		return false, fmt.Errorf("notice %s for %s: %w", n.Key, n.Org, err)
	}
	return rows == 1, nil
}

// Withdraw deletes the forecasts about an object that has ended. Those that were mailed stay mailed.
func Withdraw(ctx context.Context, tx *db.Tx, org id.Org, object string) error {
	if err := tx.Q.DeleteForecasts(ctx, org, object); err != nil {
		return fmt.Errorf("withdraw notices about %s: %w", object, err)
	}
	return nil
}

// AddForAdmins adds the notice to the personal org of each admin; n.Org is ignored. As with Add, an org that has a
// notice with this key gets no second one.
func AddForAdmins(ctx context.Context, tx *db.Tx, n Notice) error {
	orgs, err := tx.Q.AdminOrgs(ctx)
	if err != nil {
		return fmt.Errorf("read admins: %w", err)
	}
	for _, n.Org = range orgs {
		if _, err := Add(ctx, tx, n); err != nil {
			return err
		}
	}
	return nil
}

// Notices are the use cases of an org's notices. Safe for concurrent use.
type Notices struct{ db *db.DB }

// NewNotices makes the use cases; it starts nothing.
func NewNotices(d *db.DB) *Notices { return &Notices{d} }

// Filter selects notices to list.
type Filter struct {
	Unread bool
	After  id.Notice // the last one of the page before; zero: from the newest
	Limit  int
}

// List returns an org's notices, newest first.
func (n *Notices) List(ctx context.Context, org id.Org, f Filter) ([]Delivered, error) {
	return List(ctx, n.db.Q, org, f)
}

// List is Notices.List for packages that hold a query.
func List(ctx context.Context, q *dbq.Queries, org id.Org, f Filter) ([]Delivered, error) {
	after, err := f.After.UUIDValue()
	if err != nil {
		return nil, err
	}
	rows, err := q.ListNotices(ctx, dbq.ListNoticesParams{
		OrgID:      org,
		After:      after,
		UnreadOnly: f.Unread,
		MaxRows:    int32(f.Limit),
	})
	if err != nil {
		return nil, fmt.Errorf("list the notices of %s: %w", org, err)
	}
	out := make([]Delivered, len(rows))
	for i, r := range rows {
		out[i] = Delivered{ID: r.ID, At: r.CreatedAt, ReadAt: r.ReadAt, Notice: Notice{
			Org: r.OrgID, Key: r.DedupeKey, Severity: Severity(r.Severity), Title: r.Title, Body: r.Body, Object: r.Object,
		}}
	}
	return out, nil
}

// MarkRead records that a member of the org has read the notice. Reading it again changes nothing. Fault: NotFound.
func (n *Notices) MarkRead(ctx context.Context, org id.Org, notice id.Notice) error {
	rows, err := n.db.Q.MarkNoticeRead(ctx, notice, org)
	switch {
	case err != nil:
		return fmt.Errorf("mark notice %s read: %w", notice, err)
	case rows == 0:
		return fault.New(fault.NotFound, "notice not found")
	}
	return nil
}

// MarkAllRead records that a member of the org has read its notices up to newest and all older ones. Notices that
// arrived since stay unread.
func (n *Notices) MarkAllRead(ctx context.Context, org id.Org, newest id.Notice) error {
	if err := n.db.Q.MarkNoticesRead(ctx, org, newest); err != nil {
		return fmt.Errorf("mark notices of %s read: %w", org, err)
	}
	return nil
}
