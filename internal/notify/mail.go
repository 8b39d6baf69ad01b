package notify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/text"
)

// Mail is one message to one person, plain text.
type Mail struct {
	ID      id.Mail // the same however often it is sent, so that a mail system can detect a repetition
	To      string
	Subject string // one line
	Body    string
	At      time.Time // when it was written
}

// Mailer sends mail. An error that wraps ErrRefused is final; after any other the mail is sent again later.
type Mailer interface {
	Send(context.Context, Mail) error
}

// ErrRefused means that this mail will never be accepted.
var ErrRefused = errors.New("the mail was refused")

// LogMailer is the Mailer of an installation without SMTP: it notes that a mail would have been sent, and neither to
// whom nor what it says.
type LogMailer struct {
	Log *slog.Logger
	// Text makes the log show the mail's text, so that its links can be followed: for the sandbox.
	Text bool
}

// Send notes the mail's subject.
func (l LogMailer) Send(ctx context.Context, m Mail) error {
	said := []any{"mail", m.ID, "subject", m.Subject}
	if l.Text {
		said = append(said, "text", m.Body)
	}
	l.Log.InfoContext(ctx, "a mail is not sent: MUSTER_SMTP_URL is not set", said...)
	return nil
}

// Write has a mail sent to a user once tx has committed.
func Write(ctx context.Context, tx *db.Tx, user id.User, to, subject, body string) error {
	if err := tx.Q.InsertMail(ctx, dbq.InsertMailParams{
		ID:      id.New[id.Mail](),
		UserID:  user,
		Address: to,
		Subject: subject,
		Body:    body,
	}); err != nil {
		return fmt.Errorf("write mail: %w", err)
	}
	return nil
}

// Post sends mail: notices become mails to their org's owners, and mails go out.
type Post struct {
	DB        *db.DB
	Mailer    Mailer
	PublicURL string // where people reach the platform, for links
	Log       *slog.Logger
}

const (
	mailBatch   = 50
	longestWait = 30 * time.Minute
	// maxMailError is how much of a mail server's answer is stored, in bytes.
	maxMailError = 1000
)

// Run makes one pass and returns how many mails went out. Any number of replicas may; a mail goes out at least once.
func (p *Post) Run(ctx context.Context) (sent int, err error) {
	if err := p.write(ctx); err != nil {
		return 0, err
	}
	due, err := p.DB.Q.ClaimMail(ctx, mailBatch)
	if err != nil {
		return 0, fmt.Errorf("claim mail: %w", err)
	}
	var errs []error
	for _, m := range due {
		if ctx.Err() != nil {
			break // the rest is due again in minutes
		}
		ok, err := p.send(ctx, m)
		errs = append(errs, err)
		if ok {
			sent++
		}
	}
	return sent, errors.Join(errs...)
}

// write makes mails of the notices that are worth one, in one transaction with the note that it was done.
func (p *Post) write(ctx context.Context) error {
	return p.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		notices, err := tx.Q.ClaimUnmailedNotices(ctx, mailBatch)
		if err != nil {
			return fmt.Errorf("claim notices: %w", err)
		}
		for _, n := range notices {
			if !n.Worth {
				continue
			}
			owners, err := tx.Q.OwnersOfOrg(ctx, n.OrgID)
			if err != nil {
				return fmt.Errorf("owners of %s: %w", n.OrgID, err)
			}
			for _, o := range owners {
				if err := tx.Q.InsertMail(ctx, dbq.InsertMailParams{
					ID:      id.New[id.Mail](),
					UserID:  o.ID,
					Address: o.Email,
					Subject: n.Title,
					Body:    p.text(n.Title, n.Body),
				}); err != nil {
					return fmt.Errorf("write mail: %w", err)
				}
			}
		}
		return nil
	})
}

// text is the mail about a notice.
func (p *Post) text(title, body string) string {
	var b strings.Builder
	b.WriteString(title + ".\n\n")
	if body != "" {
		b.WriteString(body + "\n\n")
	}
	fmt.Fprintf(&b, "All notices: %s/notices\n", p.PublicURL)
	return b.String()
}

func (p *Post) send(ctx context.Context, m dbq.ClaimMailRow) (sent bool, err error) {
	fail := p.Mailer.Send(ctx, Mail{ID: m.ID, To: m.Address, Subject: m.Subject, Body: m.Body, At: m.CreatedAt})
	why := ""
	if fail != nil {
		why = text.Clip(text.OneLine(fail.Error()), maxMailError) // a mail server chooses what it answers
	}
	switch {
	case fail == nil:
		return true, p.DB.Q.MailSent(ctx, m.ID)
	case errors.Is(fail, ErrRefused) || m.Old:
		p.Log.WarnContext(ctx, "a mail was given up", "mail", m.ID, "attempts", m.Attempts, "error", fail)
		return false, p.DB.Q.MailFailed(ctx, m.ID, why)
	}
	wait := min(longestWait, 10*time.Second<<min(m.Attempts, 10))
	p.Log.WarnContext(ctx, "a mail could not be sent", "mail", m.ID, "attempts", m.Attempts, "again_in", wait, "error",
		fail)
	return false, p.DB.Q.MailLater(ctx, why, wait.Seconds(), m.ID)
}

// Sweep removes mail that went out or was given up a month ago.
func (p *Post) Sweep(ctx context.Context) (int64, error) { return p.DB.Q.DeleteOldMail(ctx) }
