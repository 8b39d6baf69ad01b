package web_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/musterhq/muster/web"
)

// The page of a new host shows each step of the install script as it happens, and why it stopped; the token is all that
// the script needs, and a step without one is refused.
func TestEnrolment_ShowsEachStep(t *testing.T) {
	t.Parallel()
	b := openWith(t, func(cfg *web.Config) {
		cfg.EnrollCommand = func(token string) string { return "muster-agent enroll " + token }
	})
	b.signUp()
	_, doc := b.post("/hosts/enrollments", url.Values{"region": {"eu-west"}})
	command, progress := doc.Find("#enroll-command").Text(), doc.Find("#enroll-progress").AttrOr("hx-get", "")
	_, token, found := strings.Cut(command, "enroll ")
	if !found || progress == "" {
		t.Fatalf("%q %q", command, progress)
	}
	lines := func() string {
		_, doc := b.get(progress)
		return strings.Join(strings.Fields(doc.Find("#enroll-progress").Text()), " ")
	}
	if got := lines(); !strings.Contains(got, "Waiting for the host") {
		t.Errorf("before: %s", got)
	}
	report := func(token string, form url.Values) int {
		r, err := http.NewRequest(http.MethodPost, b.url+"/hosts/enrolling", strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Authorization", "Bearer "+token)
		res, err := http.DefaultClient.Do(r) // has no cookies
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode
	}
	for _, c := range []struct {
		token  string
		form   url.Values
		status int
		want   string
	}{
		{token, url.Values{"step": {"fetch"}}, 204, "Downloading the agent"},
		{token, url.Values{"step": {"check"}}, 204, "Agent downloaded, its hash is right Checking the machine"},
		{"mst_enroll_other", url.Values{"step": {"enrol"}}, 404, "Checking the machine"},
		{token, url.Values{"step": {"dance"}}, 422, "Checking the machine"},
		{token, url.Values{"step": {"check"}, "detail": {"docker bad: it is not installed"}, "failed": {"1"}}, 204,
			"failed Docker bad: it is not installed. Fix this and run the command again"},
		{token, url.Values{"step": {"enrol"}}, 204, "The machine is fit Agent installed Making keys"},
	} {
		if got := report(c.token, c.form); got != c.status {
			t.Errorf("%v: %d, want %d", c.form, got, c.status)
		}
		if got := lines(); !strings.Contains(got, c.want) {
			t.Errorf("%v: the page shows %q, want %q", c.form, got, c.want)
		}
	}
	b.exec("UPDATE enrollment_token SET expires_at = clock_timestamp()")
	if got := report(token, url.Values{"step": {"enrol"}}); got != http.StatusNotFound {
		t.Errorf("after the token expired: %d", got)
	}
}
