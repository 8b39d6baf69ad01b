package notify

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

// postbox is a mail server: it takes what it is sent, but for addresses it knows to refuse.
type postbox struct {
	addr string
	mu   sync.Mutex
	got  []string
}

func newPostbox(t *testing.T, refuse map[string]string) *postbox {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	p := &postbox{addr: l.Addr().String()}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(c, refuse)
		}
	}()
	return p
}

func (p *postbox) serve(c net.Conn, refuse map[string]string) {
	defer c.Close()
	r := bufio.NewReader(c)
	say := func(s string) { fmt.Fprintf(c, "%s\r\n", s) }
	say("220 here")
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		switch line = strings.TrimSpace(line); {
		case strings.HasPrefix(line, "EHLO"):
			say("250 here")
		case strings.HasPrefix(line, "RCPT"):
			answer := "250 ok"
			for who, no := range refuse {
				if strings.Contains(line, who) {
					answer = no
				}
			}
			say(answer)
		case line == "DATA":
			say("354 go on")
			var b strings.Builder
			for {
				l, err := r.ReadString('\n')
				if err != nil {
					return
				}
				if strings.TrimRight(l, "\r\n") == "." {
					break
				}
				b.WriteString(l)
			}
			p.mu.Lock()
			p.got = append(p.got, b.String())
			p.mu.Unlock()
			say("250 taken")
		case line == "QUIT":
			say("221 bye")
			return
		default:
			say("250 ok")
		}
	}
}

func (p *postbox) mails() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.got...)
}

func TestMail_Unchanged(t *testing.T) {
	t.Parallel()
	box := newPostbox(t, nil)
	s, err := NewSMTP("smtp://"+box.addr, "Müster <no-reply@muster.test>")
	if err != nil {
		t.Fatal(err)
	}
	m := Mail{
		ID:      id.New[id.Mail](),
		To:      "ada@example.com",
		Subject: "Größer\r\nBcc: eve@example.com",
		Body:    "Zeile eins.\n.\n" + strings.Repeat("länger ", 60) + "\n",
		At:      time.Unix(1_700_000_000, 0),
	}
	if err := s.Send(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	got, err := mail.ReadMessage(strings.NewReader(box.mails()[0]))
	if err != nil {
		t.Fatal(err)
	}
	subject, err := new(mime.WordDecoder).DecodeHeader(got.Header.Get("Subject"))
	if err != nil || subject != "Größer Bcc: eve@example.com" || got.Header.Get("Bcc") != "" {
		t.Fatalf("%q %v %v", subject, got.Header, err)
	}
	body, err := io.ReadAll(quotedprintable.NewReader(got.Body))
	if want := strings.ReplaceAll(m.Body, "\n", "\r\n"); err != nil ||
		strings.TrimRight(strings.ReplaceAll(string(body), "\r\n..\r\n", "\r\n.\r\n"), "\r\n") != strings.TrimRight(want,
			"\r\n") {
		t.Fatalf("%q, want %q, %v", body, want, err)
	}
	if id := got.Header.Get("Message-ID"); !strings.Contains(id, m.ID.String()) {
		t.Fatal(id)
	}
}

func TestMail_Refusals(t *testing.T) {
	t.Parallel()
	box := newPostbox(t, map[string]string{"nobody@": "550 no such person", "full@": "452 the box is full"})
	s, err := NewSMTP("smtp://"+box.addr, "no-reply@muster.test")
	if err != nil {
		t.Fatal(err)
	}
	for to, final := range map[string]bool{"nobody@example.com": true, "full@example.com": false, "not an address": true} {
		err := s.Send(t.Context(), Mail{ID: id.New[id.Mail](), To: to})
		if err == nil || errors.Is(err, ErrRefused) != final {
			t.Errorf("%s: %v", to, err)
		}
	}
	for _, bad := range []string{"", "mail.example", "http://mail.example", "smtp://"} {
		if _, err := NewSMTP(bad, "a@b.c"); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
	if _, err := NewSMTP("smtp://user:hush@bad host", "a@b.c"); err == nil || strings.Contains(err.Error(), "hush") {
		t.Error(err)
	}
	if _, err := NewSMTP("smtp://mail.example", ""); err == nil {
		t.Error("mail from nobody")
	}
}

// flaky fails the given number of times, and keeps what it accepts.
type flaky struct {
	mu    sync.Mutex
	fails int
	err   error
	took  []Mail
}

func (f *flaky) Send(_ context.Context, m Mail) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fails > 0 {
		f.fails--
		return f.err
	}
	f.took = append(f.took, m)
	return nil
}

// person makes an org with one owner.
func person(t *testing.T, d *db.DB, email string) id.Org {
	t.Helper()
	org, user := id.New[id.Org](), id.New[id.User]()
	for _, q := range []struct {
		sql  string
		args []any
	}{
		{"INSERT INTO org (id, name, personal) VALUES ($1, 'o', true)", []any{org}},
		{"INSERT INTO app_user (id, email, password_hash) VALUES ($1, $2, 'x')", []any{user, email}},
		{"INSERT INTO membership (org_id, user_id, role) VALUES ($1, $2, 'owner')", []any{org, user}},
	} {
		if _, err := d.Pool.Exec(t.Context(), q.sql, q.args...); err != nil {
			t.Fatal(err)
		}
	}
	return org
}

// A notice that warns is mailed once to its org's owners, however many replicas look and however often sending fails;
// one that is only good to know is not.
func TestMail_NoticesOnce(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	org := person(t, d, "ada@example.com")
	person(t, d, "eve@example.com")
	err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		for _, n := range []Notice{
			{
				Org:      org,
				Key:      "runway:10 minutes:cl_1",
				Severity: Bad,
				Title:    "train has less than 10 minutes left",
				Body:     "Add credit.",
			},
			{Org: org, Key: "runway:24 hours:cl_1", Severity: Info, Title: "train has less than 24 hours left"},
			{Org: org, Key: "welcome", Severity: Info, Title: "Good to know"},
		} {
			if _, err := Add(ctx, tx, n); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	f := &flaky{fails: 3, err: errors.New("not now")}
	p := &Post{DB: d, Mailer: f, PublicURL: "https://muster.test", Log: slog.New(slog.NewTextHandler(&log, nil))}
	for range 6 {
		var replicas sync.WaitGroup
		for range 3 {
			replicas.Go(func() {
				if _, err := p.Run(context.Background()); err != nil {
					t.Error(err)
				}
			})
		}
		replicas.Wait()
		if _, err := d.Pool.Exec(t.Context(),
			"UPDATE mail SET next_at = clock_timestamp() WHERE sent_at IS NULL"); err != nil {
			t.Fatal(err)
		}
	}
	if len(f.took) != 2 {
		t.Fatalf("%d mails: %+v", len(f.took), f.took)
	}
	for _, m := range f.took {
		if m.To != "ada@example.com" || !strings.Contains(m.Subject, "left") ||
			!strings.Contains(m.Body, "https://muster.test/notices") {
			t.Errorf("%+v", m)
		}
	}
	if strings.Contains(log.String(), "ada@") {
		t.Error("the log names a person:", log.String())
	}
}

func TestMail_RefusedIsGivenUp(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	org := person(t, d, "ada@example.com")
	if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		_, err := Add(ctx, tx, Notice{Org: org, Key: "k", Severity: Warn, Title: "x"})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	p := &Post{DB: d, Mailer: &flaky{fails: 1, err: ErrRefused}, Log: slog.New(slog.DiscardHandler)}
	for range 3 {
		if n, err := p.Run(t.Context()); n != 0 || err != nil {
			t.Fatal(n, err)
		}
	}
	var failed int
	if err := d.Pool.QueryRow(t.Context(),
		"SELECT count(*) FROM mail WHERE failed_at IS NOT NULL AND attempts = 1").Scan(&failed); err != nil || failed != 1 {
		t.Fatal(failed, err)
	}
}

// A mail server chooses the words with which it refuses a mail. Whatever they are, the mail is not lost, nor sent again
// and again.
func TestMail_IsRecordedWhateverItsServerAnswers(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	person(t, d, "ada@example.com")
	if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		var user id.User
		if err := tx.QueryRow(ctx, "SELECT id FROM app_user").Scan(&user); err != nil {
			return err
		}
		return Write(ctx, tx, user, "ada@example.com", "subject", "body")
	}); err != nil {
		t.Fatal(err)
	}
	for _, answer := range []error{errors.New("451 \xff\x00later"), fmt.Errorf("%w: 550 \xff\x00never", ErrRefused)} {
		p := &Post{DB: d, Mailer: failing{answer}, Log: slog.New(slog.DiscardHandler)}
		if _, err := d.Pool.Exec(t.Context(), "UPDATE mail SET next_at = clock_timestamp()"); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Run(t.Context()); err != nil {
			t.Errorf("%q: %v", answer, err)
		}
	}
}

type failing struct{ err error }

func (f failing) Send(context.Context, Mail) error { return f.err }
