package notify

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"mime"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"net/smtp"
	"net/textproto"
	"net/url"
	"strings"
	"time"
)

// SMTP is a Mailer over a mail server.
type SMTP struct {
	addr, host string
	tls        bool // from the first byte
	auth       smtp.Auth
	from       mail.Address
	local      bool // the server is on this machine: it may go without TLS
}

// NewSMTP reads smtp://user:password@host:port (587; STARTTLS, demanded but of a server on this machine) or smtps://…
// (465; TLS from the first byte). from is who the mail is from: "Muster <no-reply@muster.example>". It connects to
// nothing.
func NewSMTP(server, from string) (*SMTP, error) {
	u, err := url.Parse(server)
	if err != nil || u.Hostname() == "" || (u.Scheme != "smtp" && u.Scheme != "smtps") {
		// the text may hold the password
		return nil, errors.New("the mail server is smtp://user:password@host:port or smtps://…")
	}
	s := &SMTP{host: u.Hostname(), tls: u.Scheme == "smtps"}
	port := u.Port()
	if port == "" {
		port = map[bool]string{false: "587", true: "465"}[s.tls]
	}
	s.addr = net.JoinHostPort(s.host, port)
	ip := net.ParseIP(s.host)
	s.local = s.host == "localhost" || ip != nil && ip.IsLoopback()
	f, err := mail.ParseAddress(from)
	if err != nil {
		return nil, errors.New("the sender's address is not like Muster <no-reply@muster.example>")
	}
	s.from = *f
	if pw, ok := u.User.Password(); ok {
		s.auth = smtp.PlainAuth("", u.User.Username(), pw, s.host)
	}
	return s, nil
}

// smtpLimit bounds one attempt.
const smtpLimit = time.Minute

// Send delivers a mail to the server. A permanent refusal (5xx) of the address or the mail is ErrRefused.
func (s *SMTP) Send(ctx context.Context, m Mail) error {
	to, err := mail.ParseAddress(m.To)
	if err != nil {
		return fmt.Errorf("%w: the address cannot be read", ErrRefused)
	}
	ctx, cancel := context.WithTimeout(ctx, smtpLimit)
	defer cancel()
	c, err := s.dial(ctx)
	if err != nil {
		return fmt.Errorf("mail server: %w", err)
	}
	defer func() { _ = c.Close() }() // after Quit it returns an error because it is closed
	if err := c.Mail(s.from.Address); err != nil {
		return fmt.Errorf("mail server: %w", err)
	}
	if err := c.Rcpt(to.Address); err != nil {
		return refusal(err)
	}
	w, err := c.Data()
	if err != nil {
		return refusal(err)
	}
	if _, err := w.Write(s.message(m, to)); err != nil {
		return fmt.Errorf("mail server: %w", err)
	}
	if err := w.Close(); err != nil {
		return refusal(err)
	}
	_ = c.Quit() // the mail was accepted; the answer to QUIT does not matter
	return nil
}

func (s *SMTP) dial(ctx context.Context) (*smtp.Client, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.addr)
	if err != nil {
		return nil, err
	}
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	cfg := &tls.Config{ServerName: s.host, MinVersion: tls.VersionTLS12}
	if s.tls {
		conn = tls.Client(conn, cfg)
	}
	c, err := smtp.NewClient(conn, s.host)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	if err := s.secure(c, cfg); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (s *SMTP) secure(c *smtp.Client, cfg *tls.Config) error {
	if !s.tls {
		switch ok, _ := c.Extension("STARTTLS"); {
		case ok:
			if err := c.StartTLS(cfg); err != nil {
				return err
			}
		case !s.local:
			return errors.New("it offers no TLS")
		}
	}
	if s.auth == nil {
		return nil
	}
	return c.Auth(s.auth)
}

// refusal distinguishes a permanent refusal from a temporary one.
func refusal(err error) error {
	var e *textproto.Error
	if errors.As(err, &e) && e.Code >= 500 {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return fmt.Errorf("mail server: %w", err)
}

// message is the mail as it goes over the wire. Nothing of it can begin a header of its own: the subject is encoded,
// the addresses were parsed.
func (s *SMTP) message(m Mail, to *mail.Address) []byte {
	var b bytes.Buffer
	_, domain, _ := strings.Cut(s.from.Address, "@")
	subject := strings.Join(strings.Fields(m.Subject), " ")
	for _, h := range [][2]string{
		{"From", s.from.String()}, {"To", to.String()}, {"Subject", mime.QEncoding.Encode("utf-8", subject)},
		{"Date", m.At.UTC().Format(time.RFC1123Z)}, {"Message-ID", "<" + m.ID.String() + "@" + domain + ">"},
		{"MIME-Version", "1.0"}, {"Content-Type", "text/plain; charset=utf-8"},
		{"Content-Transfer-Encoding", "quoted-printable"},
		{"Auto-Submitted", "auto-generated"},
	} {
		b.WriteString(h[0] + ": " + h[1] + "\r\n")
	}
	b.WriteString("\r\n")
	q := quotedprintable.NewWriter(&b)
	_, _ = q.Write([]byte(strings.ReplaceAll(m.Body, "\n", "\r\n"))) // a buffer takes all
	_ = q.Close()
	return b.Bytes()
}
