package web_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/dialback"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/web"
)

// gangOfNodes adds a running cluster of the visitor with n nodes of eight GPUs on as many hosts of another
// organisation, all ready, with readings of the last ten minutes and a measured network.
func (b *browser) gangOfNodes(n int) id.Cluster {
	b.t.Helper()
	cl, seller := id.New[id.Cluster](), id.New[id.Org]()
	b.exec("INSERT INTO org (id, name, personal) VALUES ($1, 'seller', false)", seller)
	pairs := make([]string, n)
	for i := range pairs {
		row := make([]string, n)
		for j := range row {
			if row[j] = fmt.Sprint(90 + (7*i+3*j)%20); i == j {
				row[j] = "0"
			}
		}
		pairs[i] = "[" + strings.Join(row, ",") + "]"
	}
	network := fmt.Sprintf(`{"cidr": "10.77.0.0/20", "busbw_gbps": 88.5, "pair_gbps": [%s]}`, strings.Join(pairs, ","))
	b.exec(`INSERT INTO cluster (id, org_id, created_by, name, spec, image_ref, state, node_count, gpus_per_node, rate,
		currency, created_at, running_at, run_until, network) SELECT $1, $2, id, 'large', jsonb_build_object('nodes', $3::int,
		'gpus_per_node', 8, 'image', 'job:1', 'on_node_failure', 'replace',
		'ports', '[{"port": 8888, "protocol": "http"}]'::jsonb),
		'job:1', 'running', $3, 8, 2400000 * 8 * $3::bigint, 'USD', now() - interval '10 min', now() - interval '9 min',
		now() + interval '1 h', $4::jsonb FROM app_user LIMIT 1`, cl, b.org(), n, network)
	b.exec(`INSERT INTO host (id, org_id, name, region, state, cpu_cores, ram_mb, disk_gb) SELECT gen_random_uuid(), $1,
		'rack-' || lpad(i::text, 2, '0'), 'eu-west', 'active', 64, 524288, 1000 FROM generate_series(0, $2::int - 1) i`,
		seller, n)
	b.exec(`INSERT INTO gpu (id, host_id, uuid, idx, model, vram_mb) SELECT gen_random_uuid(), h.id, 'GPU-' || h.id || '-' || i,
		i, 'NVIDIA H100 80GB HBM3', 81559 FROM host h, generate_series(0, 7) i WHERE h.org_id = $1`, seller)
	b.exec(`WITH l AS (
		INSERT INTO lease (id, cluster_id, node_id, rank, host_id, renter_org_id, host_org_id, gpu_count, gpu_model, gpu_ids,
			cpu_cores, ram_mb, disk_gb, currency, host_share_ppm, epoch, created_at)
		SELECT gen_random_uuid(), $1, gen_random_uuid(), substr(h.name, 6)::int, h.id, $2, $3, 8, 'NVIDIA H100 80GB HBM3',
			(SELECT array_agg(g.id ORDER BY g.idx) FROM gpu g WHERE g.host_id = h.id), 64, 500000, 100, 'USD', 850000, 1,
			now() - interval '10 min' FROM host h WHERE h.org_id = $3 RETURNING *)
		INSERT INTO node (id, cluster_id, rank, host_id, lease_id, epoch, state, address, started_at)
		SELECT node_id, cluster_id, rank, host_id, id, 1, 'ready', '10.77.0.' || rank + 1, now() - interval '9 min' FROM l`,
		cl, b.org(), seller)
	b.exec("INSERT INTO node_status (node_id, epoch, reported_at) SELECT id, 1, now() FROM node WHERE cluster_id = $1",
		cl)
	b.exec(`INSERT INTO host_status (host_id, connected, last_sync_at, protocol) SELECT id, true, clock_timestamp(), 1
		FROM host WHERE org_id = $1`, seller)
	b.exec(`INSERT INTO telemetry (gpu_id, bucket, at_ms, util, mem_mb, power_w, temp_c)
		SELECT g.id, to_timestamp(floor(extract(epoch FROM now()) / 300 - k) * 300), array_agg(at),
			array_agg(80 + (at / 10000 % 15)::int), array_agg(60000), array_agg(500 + (at / 10000 % 90)::int), array_agg(60)
		FROM gpu g JOIN host h ON h.id = g.host_id AND h.org_id = $1, generate_series(0, 2) k,
			LATERAL (SELECT t AS at FROM generate_series(
			(floor(extract(epoch FROM now()) / 300 - k) * 300000)::bigint,
			least((floor(extract(epoch FROM now()) / 300 - k) * 300000)::bigint + 290000,
				(extract(epoch FROM now()) * 1000)::bigint),
			10000) t) x
		GROUP BY g.id, k`, seller)
	return cl
}

// A cluster's page stays small and tidy however many nodes it has: what needs attention comes first, all nodes are a
// click away, and every node leads to its terminal and its ports.
func TestClusterPage_OfEverySize(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ nodes, rows, charts, squares, pairs int }{
		{1, 1, 8, 8, 0}, {3, 3, 24, 24, 9}, {64, 12, 64, 64, 0},
	} {
		b := openWith(t, withTerminal)
		b.signUp()
		cl := b.gangOfNodes(c.nodes)
		path := "/clusters/" + cl.String()
		if c.nodes == 64 {
			b.exec("UPDATE node SET state = 'lost', detail = 'Its host failed.' WHERE rank = 40")
			b.exec("UPDATE cluster SET state = 'degraded', reason = 'node_lost' WHERE id = $1", cl)
		}
		_, doc := b.get(path)
		got := []int{doc.Find("#nodes tbody tr").Length(), doc.Find("#charts svg.util").Length(),
			doc.Find(".idline svg.fm rect").Length(), doc.Find(".heat tbody td").Length()}
		if want := []int{c.rows, c.charts, c.squares, c.pairs}; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%d nodes: rows, charts, squares, pairs are %v, want %v", c.nodes, got, want)
		}
		if html, _ := doc.Html(); len(html) > 250_000 {
			t.Errorf("%d nodes: the page has %d bytes", c.nodes, len(html))
		}
		if doc.Find("#charts .gap").Length() != 0 {
			t.Errorf("%d nodes: a chart is hatched although nothing is missing", c.nodes)
		}
		if c.nodes == 64 {
			b.sizeOf64(path)
			continue
		}
		for r := range c.nodes {
			row := doc.Find(fmt.Sprintf(`#nodes tr[data-rank="%d"]`, r))
			if row.Find(fmt.Sprintf(`a[href="%s/terminal?node=%d"]`, path, r)).Length() != 1 ||
				row.Find(fmt.Sprintf(`a[href="%s/ports/%d/8888"]`, path, r)).Length() != 1 {
				t.Errorf("%d nodes: rank %d leads to %s", c.nodes, r, row.Find(".c-open").Text())
			}
		}
		if got := doc.Find("#ssh-command").Text(); got != "ssh -p 2222 "+cl.String()+"@gate.example" {
			t.Errorf("%d nodes: %q", c.nodes, got)
		}
	}
}

// sizeOf64 checks what is special about the page of 64 nodes of which rank 40 is lost.
func (b *browser) sizeOf64(path string) {
	b.t.Helper()
	_, doc := b.get(path)
	if first := doc.Find("#nodes tbody tr").First(); first.AttrOr("data-rank", "") != "40" ||
		first.Find(".c-open a[href*='terminal']").Length() != 0 {
		b.t.Errorf("the lost rank is not first, or leads to a terminal: %s", first.Text())
	}
	if text := doc.Find("main").Text(); !strings.Contains(text, "Show all 64 nodes") ||
		!strings.Contains(text, "Slowest ways") || !strings.Contains(text, "mean of each rank") {
		b.t.Errorf("64 nodes: %s", text)
	}
	if n := doc.Find("#connect a[href*='/ports/']").Length(); n > 4 {
		b.t.Errorf("%d links to ports stand beside the table of nodes", n)
	}
	if doc.Find("#logs .seg a").Length() != 0 || doc.Find("#log-rank option").Length() != 65 {
		b.t.Error("the log has a button for each of 64 ranks")
	}
	link := doc.Find("#nodes a.btn").AttrOr("href", "")
	_, doc = b.get(link)
	if doc.Find("#nodes tbody tr").Length() != 64 || !strings.Contains(doc.Find("body").AttrOr("sse-connect", ""),
		"nodes=all") {
		b.t.Errorf("all nodes: %d, live at %s", doc.Find("#nodes tbody tr").Length(),
			doc.Find("body").AttrOr("sse-connect", ""))
	}
}

// withTerminal gives a site a gateway whose shells end at once, because the visitor was signed out.
func withTerminal(cfg *web.Config) {
	cfg.SSHAddr = "gate.example:2222"
	cfg.AppLink = func(account.Principal, id.Cluster, int, int) (string, error) { return "https://app.example/", nil }
	cfg.Terminal = func(_ context.Context, _ account.Principal, _ id.Cluster, _ int, t dialback.Terminal) (int, error) {
		if _, err := t.Out.Write([]byte("hello")); err != nil {
			return 0, err
		}
		return 0, fault.New(fault.Unauthorized, "You were signed out, or your role ended, or this server restarts.")
	}
}

// A terminal's stream opens for the platform's own pages only, and says why it ended.
func TestTerminal_ForeignOriginAndEnd(t *testing.T) {
	t.Parallel()
	b := openWith(t, withTerminal)
	b.signUp()
	path := "/clusters/" + b.gangOfNodes(1).String() + "/terminal/stream?node=0"
	dial := func(origin string, client *http.Client) (*websocket.Conn, *http.Response, error) {
		return websocket.Dial(t.Context(), localhost(b.url)+path, &websocket.DialOptions{HTTPClient: client,
			HTTPHeader: http.Header{"Origin": {origin}, "Cookie": {b.cookie()}}})
	}
	for _, origin := range []string{"https://evil.example", "http://localhost.evil.example", "null",
		"http://localhost:1"} {
		if c, res, err := dial(origin, http.DefaultClient); err == nil {
			c.CloseNow()
			t.Errorf("a page of %s opened a shell", origin)
		} else if res == nil || res.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %v %v", origin, res, err)
		}
	}
	c, _, err := dial(localhost(b.url), http.DefaultClient)
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	if err := c.Write(t.Context(), websocket.MessageText, []byte(`{"cols": 80, "rows": 24}`)); err != nil {
		t.Fatal(err)
	}
	kind, out, err := c.Read(t.Context())
	if err != nil || kind != websocket.MessageBinary || string(out) != "hello" {
		t.Errorf("%v %q %v", kind, out, err)
	}
	kind, out, err = c.Read(t.Context())
	if err != nil || kind != websocket.MessageText || !strings.Contains(string(out), "You were signed out") {
		t.Errorf("%v %q %v", kind, out, err)
	}
}

// cookie is the header with the cookies of the visitor.
func (b *browser) cookie() string {
	r, _ := http.NewRequest(http.MethodGet, b.url, nil) // a valid address
	var all []string
	for _, c := range b.http.Jar.Cookies(r.URL) {
		all = append(all, c.Name+"="+c.Value)
	}
	return strings.Join(all, "; ")
}
