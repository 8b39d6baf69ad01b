package e2e

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/money"
)

// A port of a rank is shown only to those who open a link that its renter made. That includes WebSockets.
func TestApps(t *testing.T) {
	t.Parallel()
	p := sharedPlatform(t)
	r := p.renter(t, 20*money.Unit)
	s := p.spec(2, 1)
	s.Image, s.Command = p.shellImage(t), []string{"perl", "-e", httpServer}
	s.Ports = []client.Port{{Port: 8899, Protocol: "http"}}
	c := r.run(t, s)
	t.Cleanup(func() { _, _ = r.Clusters.Release(context.Background(), c.ID) })
	r.awaitListening(t, c)
	link, err := r.Clusters.GetPortLink(t.Context(), c.ID, 8899, client.RankQuery{Node: 1})
	if err != nil {
		t.Fatal(err)
	}
	b := newAppBrowser(t, strings.TrimPrefix(p.URL, "http://"))
	u, err := url.Parse(link.URL)
	if err != nil || !strings.HasPrefix(u.Host, "8899-1-") {
		t.Fatalf("%s %v", link, err)
	}
	site := u.Scheme + "://" + u.Host

	status, body := b.get(t, site+"/lab?x=1")
	if status != http.StatusForbidden {
		t.Errorf("without a link: %d %s", status, body)
	}
	if status, _ := b.get(t, strings.Replace(link.URL, "8899-1-", "8899-0-", 1)); status != http.StatusForbidden {
		t.Errorf("a link for another rank: %d", status)
	}
	// The link leads to the app, and the browser stays let in.
	if status, body := b.get(t, link.URL); status != http.StatusOK || !strings.Contains(body, "GET / HTTP/1.1") {
		t.Fatalf("the link: %d %s", status, body)
	}
	status, body = b.get(t, site+"/lab?x=1")
	if status != http.StatusOK || !strings.Contains(body, "GET /lab?x=1 HTTP/1.1") ||
		!strings.Contains(body, "Host: "+u.Host) || strings.Contains(body, "muster_app") {
		t.Errorf("the app sees: %d %s", status, body)
	}
	if status, _ := b.get(t, strings.Replace(site, "8899-1-", "8899-0-", 1)); status != http.StatusForbidden {
		t.Errorf("another rank with this one's cookie: %d", status)
	}
	if status, body := b.get(t, strings.Replace(site, "8899-1-", "1-1-", 1)); status != http.StatusForbidden {
		t.Errorf("another port with this one's cookie: %d %s", status, body)
	}

	shoutOverUpgrade(t, b, site)
	opened := func() int64 {
		return p.sql(t, "SELECT count(*) FROM audit_event WHERE action = 'cluster.app' AND object = $1", c.ID.String())
	}
	eventually(t, "the audit trail knows of the opening", func() bool { return opened() > 0 })
	if n := opened(); n != 1 {
		t.Errorf("the audit trail knows of %d openings", n)
	}
	if other, err := p.renter(t, 0).Clusters.GetPortLink(t.Context(), c.ID, 8899, client.RankQuery{Node: 1}); err == nil {
		t.Errorf("another organisation got a link: %s", other)
	}
}

// appBrowser keeps cookies and leads every name to one replica, as a browser does where a balancer is.
type appBrowser struct{ *http.Client }

func newAppBrowser(t *testing.T, at string) appBrowser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, at)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return appBrowser{&http.Client{Jar: jar, Transport: transport}}
}

func (b appBrowser) get(t *testing.T, address string) (status int, body string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := b.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp.StatusCode, string(raw)
}

// shoutOverUpgrade opens a WebSocket as far as a proxy sees one: a request to change the protocol, then bytes both
// ways.
func shoutOverUpgrade(t *testing.T, b appBrowser, site string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, site+"/socket", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "websocket")
	resp, err := b.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	stream, ok := resp.Body.(io.ReadWriter)
	if resp.StatusCode != http.StatusSwitchingProtocols || !ok {
		t.Fatalf("the upgrade: %s", resp.Status)
	}
	for _, word := range []string{"ping", "again"} {
		if _, err := io.WriteString(stream, word); err != nil {
			t.Fatal(err)
		}
		back := make([]byte, len(word))
		if _, err := io.ReadFull(stream, back); err != nil || string(back) != strings.ToUpper(word) {
			t.Errorf("%q came back: %v", back, err)
		}
	}
}

// httpServer answers a request with what it was asked, and after an upgrade returns what it receives in capitals.
const httpServer = `socket(S,2,1,6);setsockopt(S,1,2,1);bind(S,pack("S n C4 x8",2,8899,10,77,0,$ENV{NODE_RANK}+1))||die;listen(S,9);$SIG{CHLD}="IGNORE";syswrite(STDOUT,"listening\n");
while(accept(C,S)){
  if(!fork){
    while(sysread(C,$b,4096)){$h.=$b;last if $h=~/\r\n\r\n/}
    if($h=~/Upgrade: websocket/i){
      syswrite(C,"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
      while(sysread(C,$b,65536)){syswrite(C,uc $b)}
    }else{
      syswrite(C,"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n".
        "Content-Length: ".length($h)."\r\n\r\n".$h)
    }
    exit
  }
  close C
}`
