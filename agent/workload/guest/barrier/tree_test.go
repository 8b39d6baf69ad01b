package barrier

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/musterhq/muster/agent/workload/guest"
)

// A training that a script runs can save its checkpoint when the node is ended, once, whatever the script looks like.
// What needs no time gets none.
func TestTheWholeTreeHasTheGrace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	train := filepath.Join(dir, "train.sh")
	text := `trap "sleep 0.1; echo saved; exit 0" $2
: > $1
while :; do sleep 0.02; done
`
	if err := os.WriteFile(train, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		script string
		signal syscall.Signal
		code   int
		out    string
	}{
		"one of three": {`echo prepare; sh $0 $1 TERM; echo upload`, syscall.SIGTERM, 143, "prepare\nsaved\n"},
		"background":   {`sh $0 $1 TERM & wait`, syscall.SIGTERM, 143, "saved\n"},
		"its own trap": {`trap 'kill $pid; wait $pid; exit 9' TERM; sh $0 $1 TERM & pid=$!; wait $pid`, syscall.SIGTERM, 9,
			"saved\n"},
		"nested": {`sh -c 'sh $0 $1 TERM; echo upload' $0 $1; echo end`, syscall.SIGTERM, 143, "saved\n"},
		"filtered": {`sh -c 'sh $0 $1 TERM; echo upload' $0 $1 | sed 's/^/> /'; echo end`, syscall.SIGTERM, 143,
			"> saved\n"},
		"interrupt":     {`sh $0 $1 INT; echo upload`, syscall.SIGINT, 0, "saved\nupload\n"},
		"exit trap":     {`trap 'echo cleaned' EXIT; sh $0 $1 TERM; echo upload`, syscall.SIGTERM, 143, "saved\n"},
		"deferred trap": {`trap 'echo bye' TERM; sh $0 $1 TERM; echo end`, syscall.SIGTERM, 0, "saved\nbye\nend\n"},
		"other signal":  {`sh $0 $1 USR1; echo upload`, syscall.SIGUSR1, 138, "saved\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			up := filepath.Join(t.TempDir(), "up")
			cmd, out := n.start(t, "bash", "-c", c.script, train, up)
			n.next(t, guest.StateNone)
			n.release(t, 2)
			awaitFile(t, up)
			cmd.Process.Signal(c.signal)
			got := code(t, cmd)
			printed := strings.ReplaceAll(out.String(), "cleaned\n", "")
			if got != c.code || printed != c.out {
				t.Errorf("code %d, want %d; printed %q, want %q", got, c.code, printed, c.out)
			}
		})
	}
}

// A command that ends without a signal leaves nothing running that keeps the node.
func TestLeftoversDoNotKeepTheNode(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	cmd, _ := n.start(t, "sh", "-c", "sleep 5 >/dev/null 2>&1 & exit 4")
	n.next(t, guest.StateNone)
	n.release(t, 2)
	if got := code(t, cmd); got != 4 {
		t.Errorf("code %d", got)
	}
}
