package e2e

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/proxy"

	"github.com/musterhq/muster/client"
)

// lasting is one of OpenSSH's clients that stays connected.
type lasting struct {
	out, errs *waitBuffer
	end       func()
}

// hold starts ssh and ends it with the test.
func (g *guest) hold(t *testing.T, stdin string, args ...string) lasting {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "ssh", append([]string{"-F", g.config, "-o", "ExitOnForwardFailure=yes"}, args...)...)
	h := lasting{&waitBuffer{}, &waitBuffer{}, sync.OnceFunc(func() { cancel(); _ = cmd.Wait() })}
	cmd.Stdout, cmd.Stderr = h.out, h.errs
	in, err := cmd.StdinPipe() // open: at its end ssh would end too
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(h.end)
	if _, err := in.Write([]byte(stdin)); err != nil {
		t.Fatal(err)
	}
	return h
}

// editor does as VS Code's Remote-SSH does: one connection with a dynamic forward whose shell reads a script from its
// input, which unpacks a server, starts it on loopback and says where; then the editor talks to it through the forward,
// and again from a second connection once the first has ended. The server is Perl instead of VS Code's own.
func editor(t *testing.T, g *guest, c client.Cluster) {
	server := filepath.Join(g.dir, "server.pl")
	if err := os.WriteFile(server, []byte(editorServer), 0o644); err != nil {
		t.Fatal(err)
	}
	at := c.ID.String() + ".1@gateway"
	if _, errs, code := g.run(t, "", "scp", server, at+":server.pl"); code != 0 {
		t.Fatal(errs)
	}
	socks := freeAddrs(t, 1)[0]
	h := g.hold(t, "nohup perl server.pl >server.log 2>&1 </dev/null &\nwhile ! grep -q listeningOn server.log; do "+
		"sleep 0.1; done\ncat server.log\n", "-T", "-D", socks, at, "sh")
	eventually(t, "the server says where it listens",
		func() bool { return strings.Contains(h.out.String(), "listeningOn==") })
	_, rest, _ := strings.Cut(h.out.String(), "listeningOn==")
	port, _, _ := strings.Cut(rest, "==")
	dialer, err := proxy.SOCKS5("tcp", socks, nil, proxy.Direct)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := dialer.Dial("tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		t.Fatalf("through the dynamic forward: %v %s", err, h.errs)
	}
	shout(t, conn)

	// The editor is closed and comes again, this time by OpenSSH's own -L: its server is still there.
	h.end()
	local := freeAddrs(t, 1)[0]
	g.hold(t, "", "-N", "-L", local+":127.0.0.1:"+port, at)
	until(t, "the forwarded port listens", func() error {
		if conn, err = net.Dial("tcp", local); err != nil {
			return err
		}
		return nil
	})
	shout(t, conn)
}

// editorServer listens on a loopback port that the kernel chooses and returns what it receives in capitals.
const editorServer = `socket(S,2,1,6);bind(S,pack("S n C4 x8",2,0,127,0,0,1))||die;listen(S,9);$|=1;$SIG{CHLD}="IGNORE";
(undef,$p)=unpack("S n",getsockname(S));print "listeningOn==$p==\n";
while(accept(C,S)){if(!fork){while(sysread(C,$b,65536)){syswrite(C,uc $b)}exit}close C}`
