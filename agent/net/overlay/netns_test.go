package overlay

import (
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/agent/net/netns"
)

func TestMain(m *testing.M) {
	// The tests start real overlay processes: this executable, as the agent starts itself.
	if len(os.Args) > 1 && os.Args[1] == "overlay" {
		os.Exit(Main(os.Args[2:]))
	}
	if len(os.Args) > 1 && (os.Args[1] == fast || os.Args[1] == refusing) {
		useStandIn(os.Args[1] == refusing)
		os.Exit(Main(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// namespace is a network namespace of the test's own, with no way out. It ends with its file.
type namespace struct{ file *os.File }

func newNamespace(t *testing.T) namespace {
	t.Helper()
	made := make(chan *os.File)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread is spoilt
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			made <- nil
			return
		}
		f, _ := os.Open("/proc/thread-self/ns/net")
		made <- f
	}()
	f := <-made
	if f == nil {
		t.Fatal("cannot make a network namespace: run the tests as root")
	}
	ns := namespace{f}
	t.Cleanup(func() { f.Close() })
	ns.do(t, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(lo)
	})
	return ns
}

// path names the namespace as a guest's is named: a file under /proc.
func (n namespace) path() string { return "/proc/self/fd/" + strconv.Itoa(int(n.file.Fd())) }

func (n namespace) do(t *testing.T, f func() error) {
	t.Helper()
	if err := netns.Inside(n.file, f); err != nil {
		t.Fatal(err)
	}
}

func (n namespace) listen(t *testing.T, addr string) net.Listener {
	t.Helper()
	var l net.Listener
	n.do(t, func() (err error) { l, err = net.Listen("tcp4", addr); return err })
	t.Cleanup(func() { l.Close() })
	return l
}

// wire joins two namespaces by a veth pair.
func wire(t *testing.T, a namespace, aName, aAddr string, b namespace, bName, bAddr string) {
	t.Helper()
	// Made in a's namespace, so that the names never meet others'.
	a.do(t, func() error {
		v := &netlink.Veth{LinkAttrs: named(aName), PeerName: bName}
		if err := netlink.LinkAdd(v); err != nil {
			return err
		}
		peer, err := netlink.LinkByName(bName)
		if err != nil {
			return err
		}
		return netlink.LinkSetNsFd(peer, int(b.file.Fd()))
	})
	a.ip(t, "addr", "add", aAddr, "dev", aName)
	a.ip(t, "link", "set", aName, "up")
	b.ip(t, "addr", "add", bAddr, "dev", bName)
	b.ip(t, "link", "set", bName, "up")
}

func (n namespace) ip(t *testing.T, args ...string) {
	t.Helper()
	n.do(t, func() error {
		out, err := exec.Command("ip", args...).CombinedOutput()
		if err != nil {
			t.Logf("ip %v: %s", args, out)
		}
		return err
	})
}
