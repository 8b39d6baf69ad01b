package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/devstack"
	"github.com/musterhq/muster/internal/id"
)

// platform is one `muster dev` on a state folder of its own.
type platform struct {
	devstack.Info
	dir   string
	args  []string // in addition to the usual
	env   []string // KEY=value, in addition to ours; DOCKER_HOST where it has an engine of its own
	state devState
	cmd   *exec.Cmd
	ended chan struct{} // closed once the process is gone; exit is set then
	exit  error
}

// devState is what the tests need of DIR/state.json.
type devState struct {
	Secret   string `json:"secret"`
	Postgres struct {
		Data string `json:"data"`
		Port int    `json:"port"`
	} `json:"postgres"`
	Hosts []struct {
		Name string `json:"name"`
		ID   string `json:"id"`
	} `json:"hosts"`
}

// What a platform may take at most. The machine may have two cores and other tests on them.
const (
	startLimit = 4 * time.Minute
	stopLimit  = 2 * time.Minute
)

// patience is how long a test waits for what has to come. It is no claim about speed: only a failure takes so long.
var patience = 3 * time.Minute

// start brings a platform up on dir, which may hold an earlier one's state.
func start(dir string, args ...string) (*platform, error) {
	p := &platform{dir: dir, args: args}
	return p, p.run()
}

// own is a platform for this test alone. It is taken down at the end, and the machine searched for leftovers.
func own(t *testing.T, args ...string) *platform {
	t.Helper()
	return ownIn(t, nil, args...)
}

// ownIn is own with more in the platform's environment.
func ownIn(t *testing.T, env []string, args ...string) *platform {
	t.Helper()
	p := &platform{
		dir:  filepath.Join(ground, strings.NewReplacer("/", "-", " ", "-").Replace(t.Name())),
		args: args,
		env:  env,
	}
	err := p.run()
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(p.story())
		}
		if err := p.down(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// run starts `muster dev` and returns once it is ready.
func (p *platform) run() error {
	if err := os.MkdirAll(p.dir, 0o711); err != nil {
		return err
	}
	log, err := os.OpenFile(p.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	p.cmd = exec.Command(filepath.Join(bin, "muster"),
		append([]string{"dev", "--state", p.dir, "--listen", "127.0.0.1:0", "--log-level", "INFO"}, p.args...)...)
	p.cmd.Env = append(os.Environ(), p.env...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	// Should the test be killed, the platform ends in order.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	ended := make(chan struct{})
	if err := startChild(p.cmd, func(err error) { p.exit = err; close(ended) }); err != nil {
		return err
	}
	p.ended = ended
	return p.awaitReady()
}

// awaitReady waits for the dev.json of this very process.
func (p *platform) awaitReady() error {
	limit, tick := time.NewTimer(startLimit), time.NewTicker(20*time.Millisecond)
	defer limit.Stop()
	defer tick.Stop()
	for {
		var info devstack.Info
		if readJSON(filepath.Join(p.dir, "dev.json"), &info) == nil && info.PID == p.cmd.Process.Pid {
			p.Info = info
			return p.readState()
		}
		select {
		case <-p.ended:
			return fmt.Errorf("muster dev ended: %w\n%s", p.exit, tail(p.log(), 20))
		case <-limit.C:
			return fmt.Errorf("muster dev is not ready after %s\n%s", startLimit, tail(p.log(), 20))
		case <-tick.C:
		}
	}
}

func (p *platform) readState() error { return readJSON(filepath.Join(p.dir, "state.json"), &p.state) }

func (p *platform) log() string { return p.dir + ".log" }

// kill ends the server's process at once, and only it: its database, its hosts and what they run go on.
func (p *platform) kill(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.ended
}

// again starts the platform on what there is.
func (p *platform) again(t *testing.T) {
	t.Helper()
	if err := p.run(); err != nil {
		t.Fatal(err)
	}
}

// stop ends the platform in order.
func (p *platform) stop() error {
	if p.cmd == nil || p.ended == nil {
		return nil
	}
	select {
	case <-p.ended:
		return nil
	default:
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.ended:
		if p.exit != nil {
			return fmt.Errorf("muster dev ended with %w\n%s", p.exit, tail(p.log(), 20))
		}
		return nil
	case <-time.After(stopLimit):
		_ = p.cmd.Process.Kill()
		return fmt.Errorf("muster dev did not stop within %s\n%s", stopLimit, tail(p.log(), 20))
	}
}

// ownEngine reports whether it has a Docker engine of its own, which the test may kill.
func (p *platform) ownEngine() bool {
	return slices.ContainsFunc(p.env, func(v string) bool { return strings.HasPrefix(v, "DOCKER_HOST=") })
}

// down stops the platform, removes all of it, and returns as errors what is left after the stop and after the removal.
func (p *platform) down() error {
	_ = p.readState() // for the hosts of one that never came up
	errs := []error{p.stop()}
	for _, l := range p.running() {
		errs = append(errs, fmt.Errorf("%s left after the stop: %s", p.dir, l))
	}
	if _, err := os.Stat(filepath.Join(p.dir, "state.json")); err == nil {
		cmd := exec.Command(filepath.Join(bin, "muster"), "dev", "--down", p.dir)
		cmd.Env = append(os.Environ(), p.env...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			errs = append(errs, fmt.Errorf("muster dev --down: %w: %s", err, out))
		}
	}
	for _, l := range append(p.running(), p.stored()...) {
		errs = append(errs, fmt.Errorf("%s left after --down: %s", p.dir, l))
	}
	return errors.Join(errs...)
}

// story describes what happened, for a failure's message.
func (p *platform) story() string {
	logs, _ := filepath.Glob(filepath.Join(p.dir, "hosts", "*", "*.log"))
	var b strings.Builder
	for _, f := range append([]string{p.log()}, logs...) {
		fmt.Fprintf(&b, "--- %s\n%s\n", f, tail(f, 40))
	}
	return b.String()
}

// about returns the lines of the platform's and its hosts' logs that name one of the words, for a failure's message.
func (p *platform) about(words ...string) string {
	logs, _ := filepath.Glob(filepath.Join(p.dir, "hosts", "*", "*.log"))
	var b strings.Builder
	for _, f := range append([]string{p.log()}, logs...) {
		text, err := os.ReadFile(f)
		if err != nil {
			continue // a platform that keeps them elsewhere
		}
		fmt.Fprintf(&b, "--- %s, what names %s\n", f, strings.Join(words, " "))
		for l := range strings.Lines(string(text)) {
			if slices.ContainsFunc(words, func(w string) bool { return strings.Contains(l, w) }) {
				b.WriteString(l)
			}
		}
	}
	return b.String()
}

// leases are the ids of a cluster's leases, as logs name them.
func (p *platform) leases(ctx context.Context, c client.Cluster) (out []string) {
	conn, err := pgx.Connect(ctx, p.PostgresURL)
	if err != nil {
		return nil
	}
	defer conn.Close(ctx)
	rows, _ := conn.Query(ctx, "SELECT id FROM lease WHERE cluster_id = $1", c.ID) // CollectRows returns the error
	ids, _ := pgx.CollectRows(rows, pgx.RowTo[id.Lease])
	for _, l := range ids {
		out = append(out, l.String())
	}
	return out
}

// check runs `muster server check`, which adds up the ledger.
func (p *platform) check(t *testing.T) {
	t.Helper()
	cmd := exec.Command(filepath.Join(bin, "muster"), "server", "check")
	cmd.Env = append(os.Environ(), "MUSTER_DATABASE_URL="+p.PostgresURL)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("the ledger: %v\n%s", err, out)
	}
}

// sql runs one statement on the platform's database: to look at what no face shows, or to let time pass.
func (p *platform) sql(t *testing.T, query string, args ...any) (n int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := pgx.Connect(ctx, p.PostgresURL)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer c.Close(ctx)
	if strings.HasPrefix(query, "SELECT") {
		err = c.QueryRow(ctx, query, args...).Scan(&n)
	} else {
		var tag, execErr = c.Exec(ctx, query, args...)
		n, err = tag.RowsAffected(), execErr
	}
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// text reads one text from the platform's database, for a failure's message.
func (p *platform) text(t *testing.T, query string, args ...any) (s string) {
	t.Helper()
	ctx, cancel := afterwards(t)
	defer cancel()
	c, err := pgx.Connect(ctx, p.PostgresURL)
	if err == nil {
		defer c.Close(ctx)
		err = c.QueryRow(ctx, query, args...).Scan(&s)
	}
	if err != nil {
		return err.Error()
	}
	return s
}

// as is a client with one of the platform's own tokens.
func (p *platform) as(t *testing.T, token string) *client.Client {
	t.Helper()
	c, err := client.New(p.URL, token)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func readJSON(path string, v any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

// tail is the last n lines of a file.
func tail(path string, n int) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimRight(b, "\n"), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-n):], []byte("\n")))
}

// eventually polls until ok holds, and fails the test with what when it does not within the suite's patience.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	until(t, what, func() error {
		if !ok() {
			return errNotYet
		}
		return nil
	})
}

var errNotYet = errors.New("not yet")

// until polls until do succeeds, and fails the test with what and the last error when it does not within the suite's
// patience.
func until(t *testing.T, what string, do func() error) {
	t.Helper()
	deadline, pause := time.Now().Add(patience), 20*time.Millisecond
	for err := do(); err != nil; err = do() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s: %v", patience, what, err)
		}
		time.Sleep(pause)
		// an API allows a caller 1200 requests a minute, and others need the machine
		pause = min(pause*3/2, 250*time.Millisecond)
	}
}

// afterwards is a context for what is looked up once the test is over and its own has ended.
func afterwards(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
}
