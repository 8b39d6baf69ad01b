package releases_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/serve/releases"
)

const token = "mst_enroll_secret"

// agentScript stands for muster-agent: it notes its arguments, and enrols with the right token only.
const agentScript = `#!/bin/sh
echo "$*" >>"$CALLS"
case $1 in
version) echo "muster-agent 1.4" ;;
enroll)
  while [ $# -gt 1 ]; do
    case $1 in --state) state=$2 ;; --ca) cat "$2" >>"$CALLS" ;; esac
    shift
  done
  [ "$(cat)" = "` + token + `" ] || exit 1
  mkdir -p "$state" && echo '{}' >"$state/identity.json" ;;
esac
`

// served is a server that offers a release, and its folder.
func served(t *testing.T, dir string, prepare func() error) *httptest.Server {
	t.Helper()
	// The server starts after its handler is set: the handler needs the server's address.
	srv := httptest.NewUnstartedServer(nil)
	srv.Config.Handler = releases.New(releases.Config{
		Dir: dir, Prepare: prepare, PublicURL: "http://" + srv.Listener.Addr().String(),
		AgentURL: "https://agents.example:8443", CA: "its ca's PEM\n", Log: slog.New(slog.DiscardHandler),
	})
	srv.Start()
	t.Cleanup(srv.Close)
	return srv
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// packed is a release that muster dev would make of programs that stand for the real ones.
func packed(t *testing.T) (dir string, pack func() error) {
	t.Helper()
	bin := t.TempDir()
	for name, text := range map[string]string{"muster-agent": agentScript, "muster-guest": "guest"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	dir = filepath.Join(t.TempDir(), "releases")
	return dir, func() error { return releases.Pack(dir, bin, "1.4") }
}

// The command that the platform shows installs the agent from the platform's own archive and enrols the host.
func TestCommand_InstallsAndEnrols(t *testing.T) {
	t.Parallel()
	dir, pack := packed(t)
	srv := served(t, dir, pack)
	root, calls, work := t.TempDir(), filepath.Join(t.TempDir(), "calls"), t.TempDir()
	command := releases.Command(srv.URL, token)
	run := func(command string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", strings.Replace(command, "sudo bash install-agent.sh",
			"bash install-agent.sh --root "+root, 1))
		cmd.Dir, cmd.Env = work, append(os.Environ(), "CALLS="+calls)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run(command); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	noted, err := os.ReadFile(calls)
	if err != nil {
		t.Fatal(err)
	}
	if text := string(noted); !strings.Contains(text, "enroll --url https://agents.example:8443 --token-file -") ||
		!strings.Contains(text, "its ca's PEM") || strings.Contains(text, token) {
		t.Errorf("the agent was called with:\n%s", text)
	}
	if _, err := os.Stat(filepath.Join(root, "usr/local/lib/muster-agent/versions/1.4/muster-agent")); err != nil {
		t.Error(err)
	}
	if out, err := run(command); err != nil || !strings.Contains(out, "Nothing to change.") {
		t.Errorf("again: %v\n%s", err, out)
	}

	// An archive that was replaced after its hash was published is not run.
	archive := "muster-agent-1.4-linux-" + runtime.GOARCH + ".tar.gz"
	if err := os.WriteFile(filepath.Join(dir, archive), []byte("another"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := run(command); err == nil || !strings.Contains(out, "the archive is not the one you named") {
		t.Errorf("another archive: %v\n%s", err, out)
	}
}

func TestServe_FilesOfTheRelease(t *testing.T) {
	t.Parallel()
	dir, pack := packed(t)
	srv := served(t, dir, pack)
	archive := "muster-agent-1.4-linux-" + runtime.GOARCH + ".tar.gz"
	if status, script := get(t, srv.URL+releases.ScriptPath); status != http.StatusOK ||
		!strings.Contains(script, "served_archives='"+srv.URL+"/agent/1.4'\n") {
		t.Fatalf("%d %.400s", status, script)
	}
	for name, text := range map[string]string{"SHA256SUMS.sig": "signature", "release.pub": "key", "secret": "x"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]int{
		"/agent/1.4/" + archive:              200,
		"/agent/1.4/SHA256SUMS":              200,
		"/agent/1.4/SHA256SUMS.sig":          200,
		"/agent/1.4/release.pub":             200,
		"/agent/1.4/secret":                  404,
		"/agent/1.4/..%2Fsecret":             404,
		"/agent/1.3/SHA256SUMS":              404,
		"/agent/1.4/":                        404,
		"/agent/1.4/muster-agent-1.4.tar.gz": 404,
	} {
		if status, body := get(t, srv.URL+path); status != want {
			t.Errorf("%s: %d, want %d: %.200s", path, status, want, body)
		}
	}
	res, err := http.Post(srv.URL+releases.ScriptPath, "text/plain", nil)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", res.StatusCode)
	}
}

// A platform without a release says which setting it lacks.
func TestServe_NoRelease(t *testing.T) {
	t.Parallel()
	srv := served(t, "", nil)
	for _, path := range []string{releases.ScriptPath, "/agent/1.4/SHA256SUMS"} {
		if status, body := get(t, srv.URL+path); status != http.StatusNotFound ||
			!strings.Contains(body, "MUSTER_AGENT_RELEASES") {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	srv = served(t, t.TempDir(), nil)
	if status, body := get(t, srv.URL+releases.ScriptPath); status != http.StatusInternalServerError ||
		!strings.Contains(body, "operator") {
		t.Errorf("an empty folder: %d %s", status, body)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	hash := strings.Repeat("ab", 32)
	amd := hash + "  muster-agent-1.4-linux-amd64.tar.gz\n"
	for name, c := range map[string]struct {
		sums, file, want string
	}{
		"nothing":      {"", "", "names no archive"},
		"complete":     {hash + "  muster-1.4-linux-amd64.tar.gz\n" + amd, "muster-agent-1.4-linux-amd64.tar.gz", ""},
		"no archive":   {amd, "", "which is not there"},
		"two versions": {amd + hash + "  muster-agent-1.5-linux-arm64.tar.gz\n", "", "want one"},
		"a path":       {hash + "  ../muster-agent-1.4-linux-amd64.tar.gz\n", "", "names no archive"},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "SHA256SUMS"), []byte(c.sums), 0o644); err != nil {
			t.Fatal(err)
		}
		if c.file != "" {
			if err := os.WriteFile(filepath.Join(dir, c.file), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		err := releases.Check(dir)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if err := releases.Check(t.TempDir()); err == nil || !strings.Contains(err.Error(), "scripts/release makes it") {
		t.Errorf("an empty folder: %v", err)
	}
}
