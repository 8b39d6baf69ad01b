package gateway

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/dialback"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/seal"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

// patience bounds every wait for something that must happen.
const patience = time.Minute

// tenant is a renter with a token, an SSH key and a cluster, and a gateway that checks credentials often.
type tenant struct {
	t        *testing.T
	d        *db.DB
	accounts *account.Accounts
	gateway  *Gateway
	who      account.Principal
	token    id.Token
	key      ssh.Signer
	cluster  id.Cluster
}

func newTenant(t *testing.T) *tenant {
	t.Helper()
	d := dbtest.New(t)
	x := &tenant{t: t, d: d, accounts: account.New(d, account.Config{RecheckEvery: 10 * time.Millisecond,
		HashMemoryKiB: 64})}
	x.gateway = New(Config{
		Accounts: x.accounts,
		Clusters: cluster.New(d, nil, nil, cluster.Config{}),
		HostKeys: []ssh.Signer{signer(t)},
	})
	var err error
	if x.who, err = x.accounts.SignUps.Register(t.Context(), account.SignUp{
		Email: "ada@example.com", Password: "correct horse battery", Address: "192.0.2.1:1000",
	}); err != nil {
		t.Fatal(err)
	}
	x.who.Scopes = account.Scopes()
	token, _, err := x.accounts.Tokens.Issue(t.Context(), x.who, account.NewToken{
		Name: "shell", Scopes: []string{account.ScopeClusters},
	})
	if err != nil {
		t.Fatal(err)
	}
	x.token, x.key, x.cluster = token.ID, signer(t), id.New[id.Cluster]()
	if _, _, err := x.accounts.SSHKeys.Add(t.Context(), x.who, "laptop", string(ssh.MarshalAuthorizedKey(
		x.key.PublicKey())), idem.Request{}); err != nil {
		t.Fatal(err)
	}
	x.exec(`INSERT INTO cluster (id, org_id, created_by, name, spec, image_ref, state, node_count, gpus_per_node, rate,
		currency) VALUES ($1, $2, $3, 'train', '{}', 'job:1', 'running', 1, 1, 1, 'USD')`, x.cluster, x.who.Org, x.who.User)
	return x
}

func signer(t *testing.T) ssh.Signer {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (x *tenant) exec(sql string, args ...any) {
	x.t.Helper()
	if _, err := x.d.Pool.Exec(x.t.Context(), sql, args...); err != nil {
		x.t.Fatal(err)
	}
}

func (x *tenant) revokeToken() {
	x.t.Helper()
	if err := x.accounts.Tokens.Revoke(x.t.Context(), x.who, x.token); err != nil {
		x.t.Fatal(err)
	}
}

// pair returns the two ends of a TCP connection on loopback.
func pair(t *testing.T) (server, client net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if client, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return server, client
}

// dial opens an SSH connection as the user named after the cluster.
func (x *tenant) dial(c net.Conn) (*ssh.Client, error) {
	_ = c.SetDeadline(time.Now().Add(patience))
	conn, channels, requests, err := ssh.NewClientConn(c, "gateway", &ssh.ClientConfig{
		User:            x.cluster.String(),
		Auth:            []ssh.AuthMethod{ssh.PublicKeys(x.key)},
		HostKeyCallback: ssh.InsecureIgnoreHostKey(), //nolint:gosec // the test made the key a moment ago
	})
	if err != nil {
		return nil, err
	}
	return ssh.NewClient(conn, channels, requests), nil
}

// apps returns apps of the gateway and a pass to one of them.
func (x *tenant) apps() (*Apps, pass) {
	x.t.Helper()
	box, err := seal.NewBox(make([]byte, 32))
	if err != nil {
		x.t.Fatal(err)
	}
	p := NewApps(x.gateway, AppsConfig{
		Domain: "apps.muster.example", Secure: true, Box: box, Now: time.Now, StillIn: x.accounts.Credentials.StillIn,
	})
	p.nodes.open = func(context.Context, nodeKey) (*dialback.Node, error) {
		return nil, errors.New("the test has no hosts")
	}
	return p, pass{
		App: App{x.cluster, 0, 8888}.label(), Org: x.who.Org, User: x.who.User, Token: x.token, Kind: passCookie,
		Expires: time.Now().Add(appSession).Unix(),
	}
}

// An organisation that has taken all its places is refused at each way in, over SSH, by a web shell and to an app.
func TestAFullOrganisationIsRefusedAtEachWayIn(t *testing.T) {
	t.Parallel()
	x := newTenant(t)
	for range maxFromOrg {
		if _, ok := x.gateway.share(x.who.Org); !ok {
			t.Fatal("refused too early")
		}
	}
	web := Visitor{Org: x.who.Org, User: x.who.User, Token: x.token, Cluster: x.cluster}
	for name, serve := range map[string]func(net.Conn){
		"SSH": x.gateway.handle,
		"a web shell": func(c net.Conn) {
			if err := x.gateway.ServeVisitor(t.Context(), c, web); !fault.Is(err, fault.RateLimited) {
				t.Errorf("a web shell: %v", err)
			}
		},
	} {
		server, client := pair(t)
		served := make(chan struct{})
		go func() {
			defer close(served)
			serve(server)
		}()
		if conn, err := x.dial(client); err == nil {
			if _, _, err := conn.SendRequest("keepalive@openssh.com", true, nil); err == nil {
				t.Errorf("%s is served", name)
			}
		}
		client.Close()
		within(t, name, served)
	}
	p, who := x.apps()
	r := httptest.NewRequest(http.MethodGet, "https://"+who.App+".apps.muster.example/", nil)
	r.AddCookie(p.cookie(who))
	w := httptest.NewRecorder()
	if p.ServeHTTP(w, r); w.Code != http.StatusTooManyRequests {
		t.Errorf("an app: %d", w.Code)
	}
}

// within fails the test unless c is closed.
func within(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("%s goes on", what)
	}
}

// An open SSH connection ends when the key that opened it is deleted, or when its user leaves the organisation; a web
// shell's ends when its token is revoked. Each gives its place in the organisation's share back.
func TestOpenSSHConnectionsEndWithTheirCredential(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		web  bool
		lose func(*tenant)
	}{
		"key deleted":      {false, func(x *tenant) { x.exec("DELETE FROM ssh_key") }},
		"membership ended": {false, func(x *tenant) { x.exec("DELETE FROM membership") }},
		"token revoked":    {true, (*tenant).revokeToken},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newTenant(t)
			served := make(chan struct{})
			server, client := pair(t)
			go func() {
				defer close(served)
				if !c.web {
					x.gateway.handle(server)
					return
				}
				_ = x.gateway.ServeVisitor(context.Background(), server, Visitor{
					Org: x.who.Org, User: x.who.User, Token: x.token, Cluster: x.cluster,
				})
			}()
			conn, err := x.dial(client)
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := conn.SendRequest("keepalive@openssh.com", true, nil); err != nil {
				t.Fatal("the connection is not served:", err)
			}
			c.lose(x)
			_ = client.SetDeadline(time.Now().Add(patience))
			if err := conn.Wait(); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal("the SSH connection goes on")
			}
			within(t, "the gateway's side of it", served)
			if n := x.gateway.orgs[x.who.Org]; n != 0 {
				t.Errorf("%d places of the organisation are still taken", n)
			}
		})
	}
}

// A request to an app that goes on, as a WebSocket or a stream of events does, ends when the token that the app was
// opened with is revoked, on the browser's side and on the app's.
func TestOpenAppRequestsEndWithTheirCredential(t *testing.T) {
	t.Parallel()
	x := newTenant(t)
	left := make(chan struct{})
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(left)
		_, _ = io.WriteString(w, "first")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer app.CloseClientConnections()
	p, who := x.apps()
	p.proxy.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", app.Listener.Addr().String()) // in place of a host
	}}
	browser := httptest.NewServer(p)
	defer browser.CloseClientConnections()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, browser.URL+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = who.App + ".apps.muster.example"
	r.AddCookie(p.cookie(who))
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	first := make([]byte, len("first"))
	if _, err := io.ReadFull(res.Body, first); err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %q, %v", res.Status, first, err)
	}
	x.revokeToken()
	read := make(chan struct{})
	go func() {
		defer close(read)
		if _, err := io.ReadAll(res.Body); err == nil || errors.Is(err, context.Canceled) {
			t.Errorf("the browser sees a complete answer: %v", err)
		}
	}()
	within(t, "the browser's request", read)
	within(t, "the app's request", left)
}
