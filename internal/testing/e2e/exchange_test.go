package e2e

import (
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/money"
)

// exchanges is a job of two ranks that writes to its disk all the time, and sends from rank 1 to rank 0. fdatasync
// makes each write reach the disk at once, so that it is the job's own.
const exchanges = `$| = 1;
my $rank = $ENV{NODE_RANK};
if ($rank == 0 and !fork) {
  socket(my $l, 10, 1, 6) or die "socket: $!"; # IPv6, TCP
  bind($l, pack("S n N a16 L", 10, 7100, 0, "\0" x 16, 0)) or die "bind: $!";
  listen($l, 5) or die "listen: $!";
  while (accept(my $c, $l)) { 1 while sysread($c, my $b, 65536) }
  die "accept: $!";
}
my $out;
if ($rank == 1) {
  open($out, "|-", "bash", "-c",
    "until (: >/dev/tcp/node-0/7100) 2>/dev/null; do sleep 0.2; done; exec cat >/dev/tcp/node-0/7100")
    or die "bash: $!";
}
my $mark = "0123456789abcdef" x 16384;
open(my $f, "+>", "/written") or die "open: $!";
print "exchanges\n";
while (1) {
  sysseek($f, 0, 0);
  syswrite($f, $mark) == length $mark or die "write: $!";
  syscall($ENV{FDATASYNC} + 0, fileno($f)) == 0 or die "fdatasync: $!";
  if ($out) { defined syswrite($out, $mark) or die "send: $!" }
  select(undef, undef, undef, 0.2);
}
`

// Each write and each message of exchanges has a quarter of a megabyte, five times a second at most. A machine that has
// more to do writes less often, but not twenty times: what a node exchanges at rest is far below.
const leastExchange, mostExchange = 50_000, 3_000_000

// countsWrites reports whether this machine's kernel counts what a control group writes: with version 2 only.
func countsWrites() bool {
	_, err := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	return err == nil
}

// What a real node writes to its disk, and what it sends to another rank, is in REST, in the command and on the page of
// the cluster: of both ranks, in the right direction, in plausible amounts. Where the kernel does not count what is
// written, all three say that it is not known.
func TestWhatNodesExchangeIsShown(t *testing.T) {
	t.Parallel()
	p := sharedPlatform(t)
	r := p.renter(t, 10*money.Unit)
	s := p.spec(2, 1, "perl", "-e", exchanges)
	s.Image = p.shellImage(t)
	s.Env = map[string]string{"FDATASYNC": strconv.Itoa(map[string]int{"amd64": 75, "arm64": 83}[runtime.GOARCH])}
	c := r.run(t, s)
	for rank := range 2 {
		r.awaitLine(t, c, rank, "exchanges\n")
	}
	var last string
	for _, shown := range []struct {
		where string
		in    func(t *testing.T) (exchange, error)
	}{
		{"REST", func(t *testing.T) (exchange, error) { return r.exchangeInREST(t, c) }},
		{"muster cluster metrics", func(t *testing.T) (exchange, error) { return r.exchangeInCommand(t, c) }},
		{"the page's charts", func(t *testing.T) (exchange, error) { return r.exchangeOnPage(t, c) }},
	} {
		until(t, "what nodes exchange is in "+shown.where, func() error {
			x, err := shown.in(t)
			last = fmt.Sprintf("%s: %+v", shown.where, x)
			if err != nil {
				return err
			}
			return x.plausible()
		})
		t.Log(last)
	}
	if _, err := r.Clusters.Release(t.Context(), c.ID); err != nil {
		t.Fatal(err)
	}
	r.await(t, c, client.Released)
	r.settle(t, c)
}

// exchange is the highest rates of both ranks in bytes per second.
type exchange struct{ written, sent, received [2]float64 }

// plausible returns what cannot be of a cluster that runs exchanges.
func (x exchange) plausible() error {
	amounts := map[string]float64{"rank 1 sends": x.sent[1], "rank 0 receives": x.received[0]}
	if countsWrites() {
		amounts["rank 0 writes"], amounts["rank 1 writes"] = x.written[0], x.written[1]
	} else if x.written != [2]float64{} {
		return fmt.Errorf("%v B/s are written, which nothing counts", x.written)
	}
	for what, v := range amounts {
		if v < leastExchange || v > mostExchange {
			return fmt.Errorf("%s %.0f B/s", what, v)
		}
	}
	if x.sent[0] > x.sent[1]/2 || x.received[1] > x.received[0]/2 { // nothing but acknowledgements and probes
		return fmt.Errorf("rank 0 sends %.0f B/s to rank 1, which receives %.0f B/s", x.sent[0], x.received[1])
	}
	return nil
}

// add counts a reading.
func (x *exchange) add(rank int, n client.NodeRate) {
	for into, v := range map[*[2]float64]*float64{&x.written: n.DiskWrite, &x.sent: n.RanksTx, &x.received: n.RanksRx} {
		if v != nil {
			into[rank] = max(into[rank], *v)
		}
	}
}

func exchangeOf(m client.Metrics) (x exchange, err error) {
	if len(m.Nodes) != 2 {
		return x, fmt.Errorf("%d nodes", len(m.Nodes))
	}
	for _, n := range m.Nodes {
		for _, s := range n.Samples {
			x.add(n.Rank, s)
		}
	}
	return x, nil
}

func (r *renter) exchangeInREST(t *testing.T, c client.Cluster) (x exchange, err error) {
	m, err := r.Clusters.GetMetrics(t.Context(), c.ID, client.MetricsQuery{From: time.Time{}, To: time.Time{}, Step: 0})
	if err != nil {
		return x, err
	}
	return exchangeOf(m)
}

// exchangeInCommand runs muster cluster metrics for programs, and for people.
func (r *renter) exchangeInCommand(t *testing.T, c client.Cluster) (x exchange, err error) {
	muster := func(args ...string) ([]byte, error) {
		cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "muster"),
			append([]string{"cluster", "metrics", c.ID.String()}, args...)...)
		cmd.Env = append(os.Environ(), "MUSTER_SERVER="+r.p.URL, "MUSTER_TOKEN="+r.token)
		return cmd.Output()
	}
	out, err := muster("-o", "json")
	var m client.Metrics
	if err == nil {
		err = json.Unmarshal(out, &m)
	}
	if err != nil {
		return x, fmt.Errorf("%w: %s", err, out)
	}
	if out, err = muster(); err != nil {
		return x, err
	}
	// rank, host, at, then six rates: the last is what is written.
	rows := regexp.MustCompile(`(?m)^\s*[01]\s+local-.*(?:\s+[0-9.]+ [kMGT]?B/s){4}\s.*\s(?:([0-9.]+) ([kMGT]?B)/s|–)\s*$`)
	lines := rows.FindAllSubmatch(out, -1)
	if len(lines) != 2 {
		return x, fmt.Errorf("not a line for each rank:\n%s", out)
	}
	for _, l := range lines {
		if v := amount(string(l[1]), string(l[2])); countsWrites() && (v < leastExchange || v > mostExchange) ||
			!countsWrites() && l[1] != nil {
			return x, fmt.Errorf("%.0f B/s written:\n%s", v, out)
		}
	}
	return exchangeOf(m)
}

// chartOf is the description of a node's chart: its newest values, mean and highest of both directions.
var chartOf = regexp.MustCompile(`aria-label="rank ([01]): (?:in|read) [0-9.]+ [kMGT]?B/s, (?:out|written) [0-9.]+ ` +
	`[kMGT]?B/s now, (?:in|read): mean [^,]+, highest ([0-9.]+) ([kMGT]?B)/s; ` +
	`(?:out|written): mean [^,]+, highest ([0-9.]+) ([kMGT]?B)/s"`)

// exchangeOnPage reads the charts of the cluster's page. Each has a line for either direction.
func (r *renter) exchangeOnPage(t *testing.T, c client.Cluster) (x exchange, err error) {
	for measure, into := range map[string][2]*[2]float64{"disk": {nil, &x.written}, "ranks": {&x.received, &x.sent}} {
		page, err := r.page(t, "/clusters/"+c.ID.String()+"?measure="+measure)
		if err != nil {
			return x, err
		}
		if measure == "disk" && !countsWrites() {
			if n := strings.Count(page, "written not known"); n < 2 {
				return x, fmt.Errorf("%d of 2 charts say that what is written is not known", n)
			}
			continue
		}
		charts := chartOf.FindAllStringSubmatch(page, -1)
		if len(charts) != 2 || strings.Count(page, `class="ln two"`) != 2 || !strings.Contains(page, `class="tip"`) {
			_, charts, _ := strings.Cut(page, `id="charts"`)
			return x, fmt.Errorf("not a chart of two lines for each rank: %.2000s", charts)
		}
		for _, m := range charts {
			rank, _ := strconv.Atoi(m[1])
			for i, to := range into {
				if to != nil {
					to[rank] = amount(m[2+2*i], m[3+2*i])
				}
			}
		}
	}
	return x, nil
}

// amount is a number of bytes as people read it.
func amount(number, unit string) float64 {
	v, _ := strconv.ParseFloat(number, 64)
	return v * map[string]float64{"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}[unit]
}

// page returns a page as the renter's browser gets it.
func (r *renter) page(t *testing.T, path string) (string, error) {
	if r.browser == nil {
		jar, err := cookiejar.New(nil)
		if err != nil {
			return "", err
		}
		b := &http.Client{Jar: jar, Transport: r.http.Transport}
		res, err := b.PostForm(r.p.URL+"/signin", url.Values{"email": {r.email}, "password": {r.password}})
		if err != nil {
			return "", err
		}
		res.Body.Close()
		if u, err := url.Parse(r.p.URL); err != nil || len(jar.Cookies(u)) == 0 {
			return "", fmt.Errorf("not signed in: %s %v", res.Status, err)
		}
		r.browser = b
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.p.URL+path, nil)
	if err != nil {
		return "", err
	}
	res, err := r.browser.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", path, res.Status)
	}
	return html.UnescapeString(string(b)), err
}
