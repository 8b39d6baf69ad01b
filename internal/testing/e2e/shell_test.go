package e2e

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/money"
)

// guest is a user with an SSH key, and ssh's configuration for the platform's gateway.
type guest struct {
	p      *platform
	dir    string
	config string
	signer ssh.Signer
	keys   []string // the gateway's, as the API returns them
}

// withKey gives the renter an SSH key.
func (r *renter) withKey(t *testing.T) *guest {
	t.Helper()
	g := r.stranger(t)
	line, err := os.ReadFile(filepath.Join(g.dir, "key.pub"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.SSHKeys.Add(t.Context(), client.AddSSHKeyRequest{Name: "laptop", PublicKey: string(line)}); err != nil {
		t.Fatal(err)
	}
	return g
}

// stranger has a key that is not registered.
func (r *renter) stranger(t *testing.T) *guest {
	t.Helper()
	g := &guest{p: r.p, dir: t.TempDir()}
	key := filepath.Join(g.dir, "key")
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key).CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen: %v %s", err, out)
	}
	raw, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	if g.signer, err = ssh.ParsePrivateKey(raw); err != nil {
		t.Fatal(err)
	}
	gateway, err := r.SSHKeys.GetSSHGateway(t.Context())
	if err != nil || gateway.Address != r.p.GatewayAddr || len(gateway.HostKeys) < 2 {
		t.Fatalf("gateway: %+v %v, dev.json says %s", gateway, err, r.p.GatewayAddr)
	}
	host, port, err := net.SplitHostPort(gateway.Address)
	if err != nil {
		t.Fatal(err)
	}
	var known strings.Builder
	for _, k := range gateway.HostKeys {
		fmt.Fprintf(&known, "[%s]:%s %s\nnode-1 %s\n", host, port, k, k)
	}
	config := fmt.Sprintf("Host gateway\n  HostName %s\n  Port %s\nHost *\n  IdentityFile %s\n  IdentitiesOnly yes\n  "+
		"BatchMode yes\n  LogLevel ERROR\n  UserKnownHostsFile %s\n  StrictHostKeyChecking yes\n",
		host, port, key, filepath.Join(g.dir, "known"))
	g.config, g.keys = filepath.Join(g.dir, "config"), gateway.HostKeys
	for path, text := range map[string]string{g.config: config, filepath.Join(g.dir, "known"): known.String()} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

// ssh runs one of OpenSSH's clients.
func (g *guest) run(t *testing.T, stdin, program string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, append([]string{"-F", g.config}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Errorf("%s %v: %v", program, args, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// wants runs ssh and expects an output and code 0.
func (g *guest) wants(t *testing.T, want, stdin string, args ...string) {
	t.Helper()
	out, errs, code := g.run(t, stdin, "ssh", args...)
	if out != want || code != 0 {
		t.Errorf("ssh %q: %q, want %q; code %d, stderr %q", args, out, want, code, errs)
	}
}

// dial is an SSH connection made by the test itself, for what OpenSSH's clients do only at a terminal.
func (g *guest) dial(t *testing.T, user string) *ssh.Client {
	t.Helper()
	c, err := g.try(user)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func (g *guest) try(user string) (*ssh.Client, error) {
	return ssh.Dial("tcp", g.p.GatewayAddr, &ssh.ClientConfig{
		User: user, Auth: []ssh.AuthMethod{ssh.PublicKeys(g.signer)}, Timeout: patience,
		HostKeyCallback: func(_ string, _ net.Addr, key ssh.PublicKey) error {
			for _, k := range g.keys {
				if strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))) == k {
					return nil
				}
			}
			return errors.New("another host key than the API returns")
		},
	})
}

// A renter works on the ranks of a cluster with ordinary SSH clients, and without an sshd in the image.
func TestShell(t *testing.T) {
	t.Parallel()
	p := sharedPlatform(t)
	r := p.renter(t, 20*money.Unit)
	g := r.withKey(t)
	s := p.spec(2, 1)
	s.Image = p.shellImage(t)
	s.Command = []string{"perl", "-e", shouter}
	s.Env = map[string]string{"GREETING": "hello"}
	c := r.run(t, s)
	t.Cleanup(func() { _, _ = r.Clusters.Release(context.Background(), c.ID) })
	r.awaitListening(t, c)
	at := func(rank int) string { return fmt.Sprintf("%s.%d@gateway", c.ID, rank) }

	t.Run("commands", func(t *testing.T) {
		t.Parallel()
		g.wants(t, "hello teal 0 /root\n", "", at(0), `echo $GREETING $COLOUR $NODE_RANK $PWD`)
		g.wants(t, "1\n", "", c.ID.String()+"+1@gateway", `echo $NODE_RANK`)
		g.wants(t, "0\n", "", c.ID.String()+"@gateway", `echo $NODE_RANK`)
		g.wants(t, "3\n", "a\nb\nc\n", at(0), "wc -l")
		g.wants(t, "de_DE\n", "", "-o", "SetEnv=LC_ALL=de_DE", at(0), "echo $LC_ALL")
		if out, errs, code := g.run(t, "", "ssh", at(1), "echo out; echo err >&2; exit 41"); out != "out\n" ||
			errs != "err\n" || code != 41 {
			t.Errorf("%q %q %d", out, errs, code)
		}
		// From rank to rank, as mpirun does it.
		g.wants(t, "1 node-1 in 0\n", "in\n", at(0),
			`$OMPI_MCA_plm_rsh_agent -x node-1 'read x; echo $NODE_RANK $(cat /etc/hostname) $x' | while read l; do echo $l $NODE_RANK; done`)
		g.wants(t, "1 in\n", "in\n", at(0), `ssh -o PasswordAuthentication=no node-1 'read x; echo $NODE_RANK $x'`)
		// The address that a program finds for itself, as vLLM and Ray look for it, is one that other ranks reach.
		g.wants(t, "10.77.0.2\n", "", at(1), `perl -e 'socket(S,2,2,17);connect(S,pack("S n C4 x8",2,53,8,8,8,8))||die;`+
			`print join(".",(unpack("S n C4",getsockname(S)))[2..5]),"\n"'`)
		g.wants(t, "HELLO\n", "", at(0), `exec 3<>/dev/tcp/10.77.0.2/7777; echo hello >&3; read x <&3; echo $x`)
		// More than any buffer on the way, both ways.
		big := strings.Repeat("0123456789abcdef", 1<<17) // 2 MiB
		g.wants(t, big, big, at(0), "cat")
	})
	t.Run("files", func(t *testing.T) {
		t.Parallel()
		from, back := filepath.Join(g.dir, "from"), filepath.Join(g.dir, "back")
		if err := os.MkdirAll(filepath.Join(from, "deep"), 0o755); err != nil {
			t.Fatal(err)
		}
		body := bytes.Repeat([]byte("weights "), 1<<17)
		if err := os.WriteFile(filepath.Join(from, "deep", "model"), body, 0o640); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"-r", from, at(0) + ":there"}, {"-r", at(0) + ":/root/there", back}} {
			if _, errs, code := g.run(t, "", "scp", args...); code != 0 {
				t.Fatalf("scp %v: %d %s", args, code, errs)
			}
		}
		if got, err := os.ReadFile(filepath.Join(back, "deep", "model")); err != nil || !bytes.Equal(got, body) {
			t.Errorf("%d bytes came back of %d: %v", len(got), len(body), err)
		}
		out, errs, code := g.run(t, "ls -1 there/deep\nput "+g.config+" /tmp/x\nrename /tmp/x /tmp/y\nls -1 /tmp\n", "sftp",
			"-b", "-", at(0))
		if code != 0 || !strings.Contains(out, "there/deep/model") || !strings.Contains(out, "/tmp/y") {
			t.Errorf("sftp: %d %q %s", code, out, errs)
		}
	})
	t.Run("terminal", func(t *testing.T) { t.Parallel(); terminal(t, g.dial(t, fmt.Sprintf("%s.1", c.ID))) })
	t.Run("jump", func(t *testing.T) {
		t.Parallel()
		g.wants(t, "1 /root\n", "", "-J", c.ID.String()+"@gateway", "anybody@node-1", "echo $NODE_RANK $PWD")
	})
	t.Run("ports", func(t *testing.T) { t.Parallel(); ports(t, g, c) })
	t.Run("an editor", func(t *testing.T) { t.Parallel(); editor(t, g, c) })
	t.Run("with a token", func(t *testing.T) { t.Parallel(); withToken(t, r, c) })
	t.Run("nothing is left", func(t *testing.T) { t.Parallel(); leavesNothing(t, g, c) })
	t.Run("doors", func(t *testing.T) { t.Parallel(); doors(t, r, g, c) })
}

// shouter listens on port 7777, on all addresses, and returns what it receives in capitals. Perl's own functions: the
// image has no modules.
const shouter = `socket(S,2,1,6);setsockopt(S,1,2,1);bind(S,pack("S n C4 x8",2,7777,0,0,0,0))||die;listen(S,9);$SIG{CHLD}="IGNORE";syswrite(STDOUT,"listening\n");` +
	`while(accept(C,S)){if(!fork){while(sysread(C,$b,65536)){syswrite(C,uc $b)}exit}close C}`

// awaitListening waits until the program on each rank says that it listens: a cluster runs from the start of its
// programs.
func (r *renter) awaitListening(t *testing.T, c client.Cluster) {
	t.Helper()
	for rank := range c.Nodes {
		r.awaitLine(t, c, rank, "listening")
	}
}

// ports checks forwarding: to the rank itself, to another one by its name, and by OpenSSH.
func ports(t *testing.T, g *guest, c client.Cluster) {
	conn := g.dial(t, c.ID.String())
	for _, to := range []string{"localhost:7777", "127.0.0.1:7777", "node-0:7777", "node-1:7777"} {
		port, err := conn.Dial("tcp", to)
		if err != nil {
			t.Errorf("%s: %v", to, err)
			continue
		}
		shout(t, port)
	}
	unixSocket(t, conn)
	if out, errs, code := g.run(t, "over a pipe", "ssh", "-W", "localhost:7777", c.ID.String()+"@gateway"); code != 0 ||
		out != "OVER A PIPE" {
		t.Errorf("ssh -W: %q %q %d", out, errs, code)
	}
}

// socketShouter is shouter on a Unix socket, for one connection.
const socketShouter = `socket(S,1,1,0);bind(S,pack("S a*",1,"/tmp/shout.sock\0"))||die;listen(S,9);$|=1;print "listening\n";` +
	`accept(C,S);while(sysread(C,$b,65536)){syswrite(C,uc $b)}`

// unixSocket checks that a socket of the rank is forwarded, and that one that is not there is refused with words.
func unixSocket(t *testing.T, conn *ssh.Client) {
	t.Helper()
	if _, err := conn.Dial("unix", "/tmp/none.sock"); err == nil ||
		!strings.Contains(err.Error(), "nothing listens on the socket /tmp/none.sock") {
		t.Errorf("no socket: %v", err)
	}
	session, err := conn.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	out, err := session.StdoutPipe()
	if err == nil {
		err = session.Start("perl -e '" + socketShouter + "'")
	}
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "listening\n" {
		t.Fatalf("the program on the socket: %q %v", line, err)
	}
	port, err := conn.Dial("unix", "/tmp/shout.sock")
	if err != nil {
		t.Fatal(err)
	}
	shout(t, port)
}

// shout sends much and expects all of it back in capitals.
func shout(t *testing.T, port net.Conn) {
	t.Helper()
	defer port.Close()
	text := strings.Repeat("quiet words ", 1<<16)
	go func() {
		_, _ = io.WriteString(port, text)
		if half, ok := port.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	}()
	if b, err := io.ReadAll(port); err != nil || string(b) != strings.ToUpper(text) {
		t.Errorf("%d bytes of %d came back: %v", len(b), len(text), err)
	}
}

// withToken uses the command line, which needs no SSH key.
func withToken(t *testing.T, r *renter, c client.Cluster) {
	muster := func(stdin string, args ...string) (stdout, stderr string, code int) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, filepath.Join(bin, "muster"), args...)
		cmd.Env = append(os.Environ(), "MUSTER_SERVER="+r.p.URL, "MUSTER_TOKEN="+r.token)
		var out, errs bytes.Buffer
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
		if err := cmd.Run(); cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return out.String(), errs.String(), cmd.ProcessState.ExitCode()
	}
	id := c.ID.String()
	out, errs, code := muster("in", "cluster", "exec", id, "--node", "1", "--", "sh", "-c",
		"cat; echo $NODE_RANK \"$PWD\"; echo err >&2; exit 9")
	if out != "in1 /work\n" || errs != "err\n" || code != 9 {
		t.Errorf("exec: %q %q %d", out, errs, code)
	}
	if _, errs, code := muster("", "cluster", "exec", id, "--node", "7", "--", "true"); code != 2 ||
		!strings.Contains(errs, "no rank 7") {
		t.Errorf("exec on rank 7: %q %d", errs, code)
	}
	dir := t.TempDir()
	deep := filepath.Join(dir, "data", "deep")
	if err := errors.Join(os.MkdirAll(deep, 0o755), os.WriteFile(filepath.Join(deep, "file"),
		bytes.Repeat([]byte("x"), 3<<20), 0o640)); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{filepath.Join(dir, "data"), id + ":/work"},
		{id + ":/work/data/deep", filepath.Join(dir, "back")}} {
		if _, errs, code := muster("", append([]string{"cluster", "cp"}, args...)...); code != 0 {
			t.Fatalf("cp %v: %s", args, errs)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "back", "file")); err != nil || info.Size() != 3<<20 ||
		info.Mode().Perm() != 0o640 {
		t.Errorf("what came back: %+v %v", info, err)
	}
	portForward(t, r, id)
	eventually(t, "the audit trail knows of a shell by token", func() bool {
		return r.p.sql(t, "SELECT count(*) FROM audit_event WHERE action = 'cluster.shell' AND object = $1 AND token_id "+
			"IS NOT NULL AND detail->>'node' = '1'", id) > 0
	})
}

// portForward ends at once by a signal, though a stream is open that has nothing to say.
func portForward(t *testing.T, r *renter, cluster string) {
	cmd := exec.Command(filepath.Join(bin, "muster"), "cluster", "port-forward", cluster, "0:7777")
	cmd.Env = append(os.Environ(), "MUSTER_SERVER="+r.p.URL, "MUSTER_TOKEN="+r.token)
	said := &waitBuffer{}
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	eventually(t, "it listens", func() bool { return strings.Contains(said.String(), "→") })
	address, _, _ := strings.Cut(said.String(), " ")
	port, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	shout(t, port)
	idle, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	if _, err := idle.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if b := make([]byte, 1); func() error { _, err := io.ReadFull(idle, b); return err }() != nil || b[0] != 'X' {
		t.Fatalf("the idle stream says %q", b)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("port-forward ended with %v: %s", err, said.String())
		}
	case <-time.After(patience):
		t.Errorf("port-forward did not end: %s", said.String())
	}
}

// terminal checks what happens at a terminal: its size, a new size, a signal, a prompt that is typed at.
func terminal(t *testing.T, conn *ssh.Client) {
	session, err := conn.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	in, err := session.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out := &waitBuffer{}
	session.Stdout = out
	if err := session.RequestPty("xterm-256color", 33, 101, ssh.TerminalModes{}); err != nil {
		t.Fatal(err)
	}
	if err := session.Shell(); err != nil {
		t.Fatal(err)
	}
	say := func(line, want string) {
		t.Helper()
		out.reset()
		fmt.Fprintln(in, line)
		until(t, line, func() error {
			if said := out.String(); !strings.Contains(said, want) {
				return fmt.Errorf("it says %q, not %q", said, want)
			}
			return nil
		})
	}
	say(`stty size; echo "term=$TERM"`, "33 101\r\nterm=xterm-256color")
	if err := session.WindowChange(50, 120); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new size", func() bool {
		out.reset()
		fmt.Fprintln(in, "stty size; echo asked")
		eventually(t, "an answer", func() bool { return strings.Contains(out.String(), "\nasked") })
		return strings.Contains(out.String(), "50 120")
	})
	out.reset()
	// one process says so and sleeps: the terminal is its own by then
	fmt.Fprintln(in, "sh -c \"echo be''gun; exec sleep 1000\"")
	eventually(t, "sleep begins", func() bool { return strings.Contains(out.String(), "begun") })
	fmt.Fprint(in, "\x03") // Ctrl-C
	say("echo after=$?", "after=130")
	fmt.Fprintln(in, "exit 7")
	var exit *ssh.ExitError
	if err := session.Wait(); !errors.As(err, &exit) || exit.ExitStatus() != 7 {
		t.Errorf("the shell ended with %v", err)
	}
}

// leavesNothing checks that what a visitor ran is gone when the visitor is, even if it does not want to, and that what
// was meant to stay does.
func leavesNothing(t *testing.T, g *guest, c client.Cluster) {
	conn := g.dial(t, fmt.Sprintf("%s.1", c.ID))
	seed := 100_000 + rand.IntN(800_000)
	plain, deaf, unread, stays := fmt.Sprint("sleep ", seed), fmt.Sprint("sleep ", seed+1), fmt.Sprint("yes ", seed+2),
		fmt.Sprint("sleep ", seed+3)
	for _, stubborn := range []string{plain, `trap "" HUP TERM; ` + deaf + "; " + deaf, "cat >/dev/null & " + unread} {
		session, err := conn.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := session.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		if _, err := session.StdoutPipe(); err != nil { // not read
			t.Fatal(err)
		}
		if err := session.Start(stubborn); err != nil {
			t.Fatal(err)
		}
	}
	g.wants(t, "", "", fmt.Sprintf("%s.1@gateway", c.ID), "nohup "+stays+" >/dev/null 2>&1 </dev/null &")
	for _, what := range []string{plain, deaf, unread, stays} {
		eventually(t, what+" runs", func() bool { return runs(what) })
	}
	conn.Close()
	for _, what := range []string{plain, deaf, unread} {
		eventually(t, what+" is gone", func() bool { return !runs(what) })
	}
	if !runs(stays) {
		t.Error("what was started with nohup is gone too")
	}
}

// runs reports whether the machine has a process of this command line.
func runs(args string) bool {
	found, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range found {
		if b, err := os.ReadFile(f); err == nil && strings.TrimRight(strings.ReplaceAll(string(b), "\x00", " "),
			" ") == args {
			return true
		}
	}
	return false
}

// doors checks who is let in, what is refused, and the trail it leaves.
func doors(t *testing.T, r *renter, g *guest, c client.Cluster) {
	other := r.p.renter(t, 0)
	for name, try := range map[string]struct {
		who  *guest
		user string
	}{
		"an unknown key":           {r.stranger(t), c.ID.String()},
		"another organisation's":   {other.withKey(t), c.ID.String()},
		"a cluster that is not":    {g, "cl_01jd9w6n3q0000000000000001"},
		"no cluster":               {g, "root"},
		"a rank that is no number": {g, c.ID.String() + ".x"},
	} {
		if conn, err := try.who.try(try.user); err == nil {
			conn.Close()
			t.Errorf("%s opened the door", name)
		}
	}
	if _, errs, code := g.run(t, "", "ssh", c.ID.String()+".9@gateway", "true"); code != 255 ||
		!strings.Contains(errs, "There is no rank 9") {
		t.Errorf("rank 9: %d %q", code, errs)
	}
	conn := g.dial(t, c.ID.String())
	session, err := conn.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	if ok, err := session.SendRequest("auth-agent-req@openssh.com", true, nil); ok || err != nil {
		t.Errorf("agent forwarding: %v %v", ok, err)
	}
	if _, err := conn.Listen("tcp", "127.0.0.1:0"); err == nil {
		t.Error("remote forwarding was granted")
	}
	if _, err := conn.Dial("tcp", "localhost:9"); err == nil ||
		!strings.Contains(err.Error(), "nothing listens on port 9") {
		t.Errorf("a port on which nothing listens: %v", err)
	}
	if _, errs, code := g.run(t, "", "ssh", c.ID.String()+".1@gateway", "true"); code != 0 {
		t.Errorf("rank 1: %d %q", code, errs)
	}
	eventually(t, "the audit trail knows of a shell on rank 1", func() bool {
		return r.p.sql(t, "SELECT count(*) FROM audit_event WHERE action = 'cluster.shell' AND object = $1 AND "+
			"detail->>'node' = '1' AND detail->>'key' LIKE 'SHA256:%' AND address <> ''", c.ID.String()) > 0
	})
}

// An image without a shell gets one.
func TestShellWithoutAShell(t *testing.T) {
	t.Parallel()
	p := sharedPlatform(t)
	r := p.renter(t, 20*money.Unit)
	g := r.withKey(t)
	c := r.run(t, p.endless())
	user := c.ID.String() + "@gateway"
	g.wants(t, "node-0\n0 muster\n", "", user,
		`cat /etc/hostname; for i in a; do echo $NODE_RANK mus''ter; done; ls /nowhere >/dev/null 2>&1 || exit 0`)
	if out, errs, code := g.run(t, "", "ssh", user, "no-such-program"); code != 127 ||
		!strings.Contains(errs, "no-such-program") {
		t.Errorf("%q %q %d", out, errs, code)
	}
	conn := g.dial(t, c.ID.String())
	session, err := conn.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	out := &waitBuffer{}
	session.Stdout = out
	in, err := session.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(session.RequestPty("xterm", 24, 80, nil), session.Shell()); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(in, "cd /usr/local; ls bin; exit 3")
	var exit *ssh.ExitError
	if err := session.Wait(); !errors.As(err, &exit) || exit.ExitStatus() != 3 ||
		!strings.Contains(out.String(), "no shell") || !strings.Contains(out.String(), "muster-demo-job") {
		t.Errorf("%v\n%s", err, out.String())
	}
	// The cluster ends, and new clients get a message that says so.
	if _, err := r.Clusters.Release(t.Context(), c.ID); err != nil {
		t.Fatal(err)
	}
	if _, errs, code := g.run(t, "", "ssh", user, "true"); code != 255 ||
		!strings.Contains(errs, "nothing left to open a shell on") {
		t.Errorf("after the release: %d %q", code, errs)
	}
}
