package cli

import (
	"bytes"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/musterhq/muster/internal/account"
)

// lines is a writer whose text can be read while it grows.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{}
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.more <- struct{}{}:
	default:
	}
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

var userCode = regexp.MustCompile(`/device and enter this code: ([B-Z]{4}-[B-Z]{4})`)

// A person enters the code of muster login in their browser; the command stores the token, with the rights they chose.
func TestLogin_GrantedInABrowser(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	p.signUp("ada@example.com")
	accounts := account.New(p.db, account.Config{HashMemoryKiB: 64})
	_, ada, err := accounts.Sessions.SignIn(t.Context(), account.SignIn{
		Email:    "ada@example.com",
		Password: "correct horse battery",
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		scopes []string
		code   int
		says   string
	}{
		"granted": {[]string{"read"}, 0, "Logged in"},
		"denied":  {nil, 1, "was denied"},
	} {
		t.Run(name, func(t *testing.T) {
			out, errs := &lines{more: make(chan struct{}, 1)}, &lines{more: make(chan struct{}, 1)}
			done := make(chan int)
			go func() {
				done <- tested.Run(t.Context(), []string{"login", p.url, "--no-browser", "--profile", name},
					[]string{"HOME=" + p.home, "USER=ada"}, strings.NewReader(""), out, errs)
			}()
			var code string
			for code == "" {
				select {
				case <-errs.more:
				case <-done:
					t.Fatal(errs)
				}
				if m := userCode.FindStringSubmatch(errs.String()); m != nil {
					code = m[1]
				}
			}
			r, err := accounts.DeviceLogins.ByCode(t.Context(), ada, strings.ToLower(code))
			if err != nil || !strings.HasPrefix(r.Machine, "ada@") {
				t.Fatal(r, err)
			}
			if err := accounts.DeviceLogins.Answer(t.Context(), ada, code, c.scopes); err != nil {
				t.Fatal(err)
			}
			if got := <-done; got != c.code || !strings.Contains(out.String()+errs.String(), c.says) {
				t.Errorf("exit %d\n%s%s", got, out, errs)
			}
		})
	}
	if out := p.ok("whoami", "--profile", "granted"); !strings.Contains(out, "ada@example.com") {
		t.Error(out)
	}
	if err := accounts.DeviceLogins.Answer(t.Context(), ada, "BCDF-GHJK", nil); err == nil {
		t.Error("a code that nobody was given")
	}
}
