// Package deploy holds what brings Muster onto machines; its tests run the scripts and read the role.
package deploy

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const token = "mst_enroll_secret"

// agentScript stands for muster-agent: it notes how it was called, and enrols with what it reads as the token.
const agentScript = `#!/bin/sh
echo "$*" >>"$CALLS"
case $1 in
version) echo "muster-agent 1.0" ;;
doctor)
  if [ "$2" = --help ]; then echo "$FLAGS"; exit; fi
  echo "$DOCTOR docker"; [ "$DOCTOR" != bad ] ;;
enroll)
  while [ $# -gt 1 ]; do
    case $1 in --token-file) file=$2 ;; --state) state=$2 ;; esac
    shift
  done
  [ "$file" = - ] && file=/dev/stdin
  [ "$(cat "$file")" = "` + token + `" ] || { echo "the token is wrong" >&2; exit 1; }
  mkdir -p "$state" && echo '{}' >"$state/identity.json" ;;
esac
`

// machine is a root directory to install in.
type machine struct {
	t                           *testing.T
	root, archive, calls, sha   string
	doctor                      string
	flags                       string // of the doctor
	unit, agent, guest, stateAt string
	link                        string // what people and the service call
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	dir := t.TempDir()
	m := &machine{
		t:       t,
		root:    filepath.Join(dir, "root"),
		archive: filepath.Join(dir, "agent.tar.gz"),
		calls:   filepath.Join(dir, "calls"),
		doctor:  "ok",
		flags:   "--state --url --ca",
	}
	versions := filepath.Join(m.root, "usr/local/lib/muster-agent/versions")
	m.agent, m.guest = filepath.Join(versions, "1.0/muster-agent"), filepath.Join(versions, "1.0/muster-guest")
	m.link = filepath.Join(m.root, "usr/local/bin/muster-agent")
	m.unit, m.stateAt = filepath.Join(m.root, "etc/systemd/system/muster-agent.service"),
		filepath.Join(m.root, "var/lib/muster-agent")
	if err := os.Mkdir(m.root, 0o755); err != nil {
		t.Fatal(err)
	}
	unit, err := os.ReadFile("muster-agent.service")
	if err != nil {
		t.Fatal(err)
	}
	m.pack(map[string]string{"muster-agent": agentScript, "muster-guest": "guest 1", "muster-agent.service": string(unit)})
	return m
}

// pack builds the archive again.
func (m *machine) pack(files map[string]string) {
	m.t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for name, text := range files {
		err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(text)), Typeflag: tar.TypeReg})
		if _, werr := w.Write([]byte(text)); errors.Join(err, werr) != nil {
			m.t.Fatal(err, werr)
		}
	}
	if err := errors.Join(w.Close(), z.Close(), os.WriteFile(m.archive, b.Bytes(), 0o644)); err != nil {
		m.t.Fatal(err)
	}
	sum := sha256.Sum256(b.Bytes())
	m.sha = hex.EncodeToString(sum[:])
}

// run calls the script in the root, with stdin, and returns what it said and whether it succeeded.
func (m *machine) run(stdin string, args ...string) (string, bool) {
	m.t.Helper()
	cmd := exec.CommandContext(m.t.Context(), "bash", append([]string{"install-agent.sh", "--root", m.root}, args...)...)
	cmd.Env = append(os.Environ(), "CALLS="+m.calls, "DOCTOR="+m.doctor, "FLAGS="+m.flags)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		m.t.Fatal(err)
	}
	return string(out), err == nil
}

func (m *machine) install(stdin string, more ...string) (string, bool) {
	m.t.Helper()
	return m.run(stdin, append([]string{"--archive", m.archive, "--sha256", m.sha}, more...)...)
}

func (m *machine) must(out string, ok bool) string {
	m.t.Helper()
	if !ok {
		m.t.Fatalf("it failed:\n%s", out)
	}
	return out
}

// refused wants a failure that says why, with nothing installed.
func (m *machine) refused(why, out string, ok bool) {
	m.t.Helper()
	if ok || !strings.Contains(out, why) {
		m.t.Errorf("want a refusal with %q, got (succeeded: %v):\n%s", why, ok, out)
	}
	m.holds(0)
}

// holds counts the files in the root.
func (m *machine) holds(want int) {
	m.t.Helper()
	var found []string
	err := filepath.WalkDir(m.root, func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			found = append(found, p)
		}
		return err
	})
	if err != nil || len(found) != want {
		m.t.Errorf("%d files, want %d: %v (%v)", len(found), want, found, err)
	}
}

func (m *machine) read(path string) string {
	m.t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		m.t.Fatal(err)
	}
	return string(b)
}

func TestInstallEnrolUpgradeUninstall(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	enrol := []string{"--url", "https://agents.example", "--token-file", "-"}

	if out := m.must(m.install(token, append(enrol, "--dry-run")...)); !strings.Contains(out, "would install "+m.agent) ||
		!strings.Contains(out, "would enrol") {
		t.Errorf("dry run:\n%s", out)
	}
	m.holds(0)

	if out := m.must(m.install("")); !strings.Contains(out, "not enrolled") {
		t.Errorf("installed without a token:\n%s", out)
	}
	m.holds(5) // and two links
	if info, err := os.Stat(m.link); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("%v %v", info, err)
	}
	if !strings.Contains(m.read(m.unit), "KillMode=process") {
		t.Error("the unit would end what runs for renters")
	}

	if out := m.must(m.install(token+"\n", enrol...)); strings.Contains(out, "install ") ||
		!strings.Contains(out, "enrol this host at https://agents.example") {
		t.Errorf("enrolment:\n%s", out)
	}
	m.holds(6)
	for range 2 { // whatever is left of the token
		if out := m.must(m.install("used up", enrol...)); !strings.Contains(out, "Nothing to change.") {
			t.Errorf("again:\n%s", out)
		}
	}
	if calls := m.read(m.calls); strings.Contains(calls, "--ephemeral") || strings.Contains(calls, token) ||
		strings.Count(calls, "enroll") != 1 {
		t.Errorf("calls:\n%s", calls)
	}

	m.pack(map[string]string{
		"muster-agent":         agentScript,
		"muster-guest":         "guest 2",
		"muster-agent.service": m.read(m.unit),
	})
	if out := m.must(m.install("")); !strings.Contains(out, "install "+m.guest) ||
		strings.Contains(out, "install "+m.agent) {
		t.Errorf("upgrade of the guest:\n%s", out)
	}
	if m.read(m.guest) != "guest 2" {
		t.Error("the guest is the old one")
	}

	m.pack(map[string]string{
		"muster-agent":         strings.Replace(agentScript, "muster-agent 1.0", "muster-agent 1.1", 1),
		"muster-guest":         "guest 3",
		"muster-agent.service": m.read(m.unit),
	})
	m.must(m.install(""))
	if to, err := filepath.EvalSymlinks(m.link); err != nil || filepath.Base(filepath.Dir(to)) != "1.1" {
		t.Errorf("after an upgrade the agent is %s (%v)", to, err)
	}
	if m.read(m.guest) != "guest 2" {
		t.Error("the version before was touched")
	}
	m.holds(8)

	if out := m.must(m.run("", "--uninstall", "--dry-run")); !strings.Contains(out, "would remove "+m.link) {
		t.Errorf("dry uninstall:\n%s", out)
	}
	m.holds(8)
	m.must(m.run("", "--uninstall"))
	m.holds(1) // the identity
	if calls := m.read(m.calls); !strings.HasSuffix(calls, "purge --images --state "+m.stateAt+"\n") {
		t.Errorf("calls:\n%s", calls)
	}
	if out := m.must(m.run("", "--uninstall")); !strings.Contains(out, "Nothing to change.") {
		t.Errorf("uninstall again:\n%s", out)
	}
}

// What is not right changes nothing and says why.
func TestInstallRefuses(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	refused := func(why string, args ...string) {
		t.Helper()
		out, ok := m.run(token, args...)
		m.refused(why, out, ok)
	}
	refused("--archive is missing", "--sha256", m.sha)
	refused("--sha256 is missing", "--archive", m.archive)
	refused("its sha256 is "+m.sha, "--archive", m.archive, "--sha256", strings.Repeat("0", 64))
	refused("must begin with https://", "--archive", "http://127.0.0.1/agent.tar.gz", "--sha256", m.sha)
	refused("read by every user", "--archive", m.archive, "--sha256", m.sha, "--token", token)
	refused("--url needs --token-file", "--archive", m.archive, "--sha256", m.sha, "--url", "https://agents.example")
	refused("--uninstall can be combined with", "--uninstall", "--force")
	if _, err := os.Stat(m.calls); err == nil {
		t.Errorf("the agent was run before it was checked:\n%s", m.read(m.calls))
	}

	m.doctor = "bad"
	out, ok := m.install("")
	m.refused("bad docker", out, ok)
	m.must(m.install("", "--force"))
	m.holds(5)
	m.must(m.run("", "--uninstall"))

	m.pack(map[string]string{"muster-agent": "\x7fELF", "muster-guest": "guest", "muster-agent.service": ""})
	out, ok = m.install("", "--force")
	m.refused("does not run on this", out, ok)
	m.pack(map[string]string{"muster-agent": agentScript})
	out, ok = m.install("")
	m.refused("the archive does not hold", out, ok)
}

// A refused token leaves the agent installed, and the same command with a good one ends well.
func TestEnrolmentIsTriedAgain(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	enrol := []string{"--url", "https://agents.example", "--token-file", "-"}
	if out, ok := m.install("old", enrol...); ok || !strings.Contains(out, "the token is wrong") ||
		!strings.Contains(out, "run this again") {
		t.Errorf("a wrong token:\n%s", out)
	}
	m.must(m.install(token, enrol...))
	m.holds(6)
}

// Uninstalling is refused while a lease runs. A lease that is over does not prevent it, even if its end is not yet
// confirmed.
func TestUninstallRefusesWhileALeaseRuns(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.must(m.install(token, "--url", "https://agents.example", "--token-file", "-"))
	lease := func(name, record string) string {
		t.Helper()
		dir := filepath.Join(m.stateAt, "leases", name)
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "lease.json"), []byte(record),
			0o600)); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	lease("ls_over-e1", `{"spec":{"lease":"ls_over"},"down":true,"gone":true}`)
	runs := lease("ls_runs-e2", `{"spec":{"lease":"ls_runs","command":["echo","\"gone\":true"]},"started":true}`)
	if out, ok := m.run("", "--uninstall"); ok || !strings.Contains(out, "1 lease runs here: ls_runs-e2") {
		t.Errorf("while a lease runs (succeeded: %v):\n%s", ok, out)
	}
	m.holds(8)
	if err := os.RemoveAll(runs); err != nil {
		t.Fatal(err)
	}
	m.must(m.run("", "--uninstall"))
	m.holds(2)
}

// Before it installs anything, the script passes the platform's address to the doctor, which checks whether the
// platform's ports are open from here. The doctor of an agent that does not check ports gets no address.
func TestInstallLooksAtThePorts(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	enrol := []string{"--url", "https://agents.example", "--token-file", "-", "--ca", ca}
	m.doctor = "bad"
	out, ok := m.install(token, enrol...)
	m.refused("bad docker", out, ok)
	want := "doctor --state " + m.stateAt + " --url https://agents.example --ca " + ca + "\n"
	if calls := m.read(m.calls); !strings.HasSuffix(calls, want) || strings.Contains(calls, "enroll") {
		t.Errorf("calls:\n%s", calls)
	}
	m.doctor, m.flags = "ok", "--json"
	m.must(m.install(token, enrol...))
	if calls := m.read(m.calls); !strings.Contains(calls, "\ndoctor\n") {
		t.Errorf("of before:\n%s", calls)
	}
}
