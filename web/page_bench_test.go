package web_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/a-h/templ"
	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/web"
)

// BenchmarkSignedInPage compares the list of 50 clusters, the longest that a page shows, with a page as most would
// write it with the same router, driver and templates: it reads the session, the wallet and the rows, one after the
// other, and renders a table (goal 10). Both are read over HTTP, 16 at once.
func BenchmarkSignedInPage(b *testing.B) {
	w := openWith(b, func(c *web.Config) { c.AddressPerMinute = 1 << 30 })
	w.signUp()
	states := map[string]string{}
	for i := range 50 {
		states[fmt.Sprintf("train-%d", i)] = "released"
	}
	w.addClusters(states)
	naive := httptest.NewServer(naivePage(w.db))
	defer naive.Close()
	w.exec("CREATE TABLE naive_session (token_hash bytea PRIMARY KEY, org_id uuid NOT NULL, email text NOT NULL, " +
		"expires_at timestamptz NOT NULL)")
	hash := sha256.Sum256([]byte("secret"))
	w.exec("INSERT INTO naive_session VALUES ($1, $2, 'mira@northlight.example', now() + interval '1 day')", hash[:],
		w.org())
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	ours := &http.Client{Transport: transport, Jar: w.http.Jar}
	theirs := &http.Client{Transport: transport}
	read := func(client *http.Client, url string) error {
		req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		if client == theirs {
			req.AddCookie(&http.Cookie{Name: "session", Value: "secret"})
		}
		res, err := client.Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		raw, err := io.ReadAll(res.Body)
		if err == nil && (res.StatusCode != http.StatusOK || len(raw) < 5_000) {
			err = fmt.Errorf("%s: %d, %d bytes", url, res.StatusCode, len(raw))
		}
		return err
	}
	for name, do := range map[string]func() error{
		"ours":  func() error { return read(ours, w.url+"/clusters?show=all") },
		"naive": func() error { return read(theirs, naive.URL+"/clusters") },
	} {
		b.Run(name, func(b *testing.B) {
			b.SetParallelism(8) // times two cores
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					if err := do(); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// naivePage is the page of the baseline.
func naivePage(d *db.DB) http.Handler {
	r := chi.NewRouter()
	r.Get("/clusters", func(w http.ResponseWriter, r *http.Request) {
		fail := func(err error) { http.Error(w, err.Error(), http.StatusInternalServerError) }
		cookie, err := r.Cookie("session")
		if err != nil {
			fail(err)
			return
		}
		hash := sha256.Sum256([]byte(cookie.Value))
		var org [16]byte
		var email string
		if err := d.Pool.QueryRow(r.Context(), "SELECT org_id, email FROM naive_session WHERE token_hash = $1 AND "+
			"expires_at > now()", hash[:]).Scan(&org, &email); err != nil {
			fail(err)
			return
		}
		var wallet int64
		if err := d.Pool.QueryRow(r.Context(), "SELECT coalesce(sum(b.amount), 0)::bigint FROM ledger_account a JOIN "+
			"ledger_balance b ON b.account_id = a.id WHERE a.org_id = $1 AND a.kind = 'wallet'", org).Scan(&wallet); err != nil {
			fail(err)
			return
		}
		rows, err := d.Pool.Query(r.Context(), "SELECT id::text, name, state, node_count, gpus_per_node, rate, created_at "+
			"FROM cluster WHERE org_id = $1 ORDER BY created_at DESC, id DESC LIMIT 50", org)
		if err != nil {
			fail(err)
			return
		}
		defer rows.Close()
		var list []naiveRow
		for rows.Next() {
			var x naiveRow
			if err := rows.Scan(&x.id, &x.name, &x.state, &x.nodes, &x.gpus, &x.rate, &x.created); err != nil {
				fail(err)
				return
			}
			list = append(list, x)
		}
		if err := rows.Err(); err != nil {
			fail(err)
			return
		}
		templ.Handler(naiveTable(email, money.Nano(wallet), list)).ServeHTTP(w, r)
	})
	return r
}

type naiveRow struct {
	id, name, state string
	nodes, gpus     int32
	rate            int64
	created         time.Time
}

func naiveTable(email string, wallet money.Nano, list []naiveRow) templ.Component {
	return templ.ComponentFunc(func(_ context.Context, w io.Writer) error {
		if _, err := fmt.Fprintf(w, "<!doctype html><html><head><title>Clusters</title><link rel=stylesheet "+
			"href=/s.css></head><body><header>%s %s</header><table><thead><tr><th>Name<th>State<th>Size<th>Price<th>"+
			"Created</tr></thead><tbody>", templ.EscapeString(email), wallet); err != nil {
			return err
		}
		for _, x := range list {
			if _, err := fmt.Fprintf(w, "<tr><td><a href=\"/clusters/%s\">%s</a><td>%s<td>%d × %d<td>%s<td>%s</tr>",
				x.id, templ.EscapeString(x.name), templ.EscapeString(x.state), x.nodes, x.gpus, money.Micro(x.rate),
				x.created.Format(time.DateTime)); err != nil {
				return err
			}
		}
		_, err := io.WriteString(w, "</tbody></table></body></html>")
		return err
	})
}
