package gateway

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/id"
)

// An app gets a request as the browser sent it: its target and its cookies, whatever their syntax, without the
// gateway's own cookie.
func TestRequestsArriveUnchanged(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	p := newTestApps(t, 1, &now)
	label := App{id.New[id.Cluster](), 0, 8080}.label()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	got := make(chan string, 1)
	go func() { // not a server of Go's, which would parse what it reads
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			target, cookies := "", []string{}
			for r := bufio.NewReader(c); ; {
				line, err := r.ReadString('\n')
				if line = strings.TrimRight(line, "\r\n"); line == "" || err != nil {
					break
				}
				if target == "" {
					target = strings.TrimSuffix(strings.TrimPrefix(line, "GET "), " HTTP/1.1")
				}
				if v, ok := strings.CutPrefix(line, "Cookie: "); ok {
					cookies = append(cookies, v)
				}
			}
			got <- target + " " + strings.Join(cookies, " + ")
			fmt.Fprint(c, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
			c.Close()
		}
	}()
	p.proxy.Transport = &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String())
		}}
	server := httptest.NewServer(p.proxy)
	defer server.Close()
	own := p.cookieName() + "=secret"
	for _, tc := range []struct{ target, cookies, want string }{
		{"/", `session={"id":"u1","n":2}; plain=1`, ""},
		{"/", `a="p=o\073s=x"; b=x,y; d=e f`, ""},
		{"/", `=nameless; novalue; b="q;r"`, ""},
		{"/", own, " "},
		{"/", own + "; a=1", "a=1"},
		{"/", "a=1; " + own, "a=1"},
		{"/", "a=1;" + own + ";b=2;  c=3 ", "a=1;b=2;  c=3"},
		{"/", "x" + own, ""},
		{"/?foo=bar;moo", "", ""},
		{"/?a=1;b=2&c=3", "", ""},
		{"/x?q=100%&r=1", "", ""},
		{"/x?q=%zz&&=", "", ""},
		{"/?", "", ""},
		{"/a?b?c=/d", "", ""},
		{"/a%2Fb//c/../d;e=1|f[0]\"'?x", "", ""},
		{"//a/b?c", "", ""},
	} {
		c, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		request := "GET " + tc.target + " HTTP/1.1\r\nHost: " + label + ".apps.muster.example\r\nConnection: close\r\n"
		if tc.cookies != "" {
			request += "Cookie: " + tc.cookies + "\r\n"
		}
		fmt.Fprint(c, request+"\r\n")
		response, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || response.StatusCode != http.StatusNoContent {
			t.Fatalf("%s: %v %v", tc.target, response, err)
		}
		c.Close()
		want := tc.cookies
		if tc.want != "" {
			want = strings.TrimSpace(tc.want)
		}
		if g := <-got; g != tc.target+" "+want {
			t.Errorf("%s with %s: the app got %s", tc.target, tc.cookies, g)
		}
	}
}
