package platform

import (
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/notify"
)

func TestDevShowsTheLinkOfAMail(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	mail := notify.Mail{
		To:      "ada@example.com",
		Subject: "Confirm your e-mail address",
		Body: "Somebody has an account at http://127.0.0.1:8080 with this address.\n\nTo confirm it, " +
			"open:\n\nhttp://127.0.0.1:8080/verify-email/abc\n\nhttp://other\n",
	}
	if err := (devMailer{&out}).Send(t.Context(), mail); err != nil {
		t.Fatal(err)
	}
	if want := "mail to ada@example.com: Confirm your e-mail address\n  " +
		"http://127.0.0.1:8080/verify-email/abc\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
