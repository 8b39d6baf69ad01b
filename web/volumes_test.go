package web_test

import (
	"bytes"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/PuerkitoBio/goquery"

	"github.com/musterhq/muster/internal/data/manifest"
	"github.com/musterhq/muster/internal/data/store"
	"github.com/musterhq/muster/internal/id"
)

func folderOf(t testing.TB, site string) *store.Folder {
	t.Helper()
	f, err := store.OpenFolder(t.TempDir(), site, bytes.Repeat([]byte{7}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// A volume is created, shown with what is durable of it, and deleted; what is typed wrong is shown beside its field.
func TestVolumes_Pages(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	_, doc := b.get("/volumes")
	if !strings.Contains(doc.Text(), "No volumes yet") {
		t.Fatal(doc.Find("main").Text())
	}
	for path, name := range map[string]string{
		"/volumes": "Volumes", "/buckets": "Buckets", "/shared": "Shared file systems",
	} {
		_, doc := b.get(path)
		at := doc.Find(`nav [aria-current="page"]`).Map(func(_ int, s *goquery.Selection) string { return s.Text() })
		if want := []string{"Data", name}; !slices.Equal(at, want) {
			t.Errorf("%s: the navigation is at %q, want %q", path, at, want)
		}
	}
	_, doc = b.post("/volumes", url.Values{"name": {"Not A Name"}, "size_gb": {"x"}})
	if doc.Find("#size_gb-e").Length() != 1 {
		t.Errorf("a bad size is not shown beside its field: %s", doc.Find("main").Text())
	}
	_, doc = b.post("/volumes", url.Values{"name": {"Not A Name"}, "size_gb": {"10"}})
	if doc.Find("#name-e").Length() != 1 {
		t.Errorf("a bad name is not shown beside its field: %s", doc.Find("main").Text())
	}
	res, doc := b.post("/volumes", url.Values{"name": {"training-data"}, "size_gb": {"10"}})
	if text := doc.Find("main").Text(); !strings.Contains(text, "training-data") || !strings.Contains(text, "10 GB") ||
		!strings.Contains(text, "There is no snapshot yet") {
		t.Fatalf("%d %s", res.StatusCode, text)
	}
	at := res.Request.URL.Path
	res, doc = b.post(at+"/snapshots", nil)
	if res.StatusCode != http.StatusConflict || !strings.Contains(doc.Find("main").Text(), "No cluster writes") {
		t.Errorf("%d %s", res.StatusCode, doc.Find("main").Text())
	}
	if _, doc = b.get("/volumes"); !strings.Contains(doc.Find("main").Text(), "training-data") {
		t.Errorf("%s", doc.Find("main").Text())
	}
	if res, _ := b.get("/volumes/vol_01jd9w6n3qf8vtx2m5k7c4hzrb"); res.StatusCode != http.StatusNotFound {
		t.Errorf("another volume: %d", res.StatusCode)
	}
	_, doc = b.post(at+"/delete", nil)
	if !strings.Contains(doc.Find("main").Text(), "No volumes yet") {
		t.Errorf("%s", doc.Find("main").Text())
	}
}

// What the store has lost is shown with the snapshots that need it and the last one that does not; a notice of it leads
// to the volume.
func TestVolumes_LostParts(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	vol := b.volume("training-data")
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := b.db.Pool.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	v, err := id.Parse[id.Volume](vol)
	if err != nil {
		t.Fatal(err)
	}
	exec(`INSERT INTO data_session (id, volume_id, domain_id, mode, base_seq, base_packs, expires_at)
		SELECT gen_random_uuid(), id, domain_id, 'rw', 0, '', clock_timestamp() FROM volume WHERE id = $1`, v)
	for n := int64(1); n <= 3; n++ {
		exec(`INSERT INTO data_pack (domain_id, n, session_id, state, sha256, bytes, url_until, verified_at)
			SELECT domain_id, $2, id, 'live', sha256('x'), 1, clock_timestamp(), clock_timestamp() FROM data_session
			WHERE volume_id = $1`, v, n)
		exec(`INSERT INTO volume_snapshot (volume_id, seq, id, root_id, root_pack, root_offset, root_length, root_size, packs,
			logical_bytes, added_bytes, files, cut_at, committed_at, cause, consistency) VALUES ($1, $2, gen_random_uuid(),
			sha256('x'), $2, 0, 1, 1, $3, 1, 1, 1, '2026-01-01', '2026-01-01', 'interval', 'exact')`, v, n,
			manifest.NewPackSet(n).Encode())
	}
	exec("UPDATE volume SET head_seq = 3 WHERE id = $1", v)
	_, doc := b.get("/volumes/" + vol)
	if text := doc.Find("main").Text(); strings.Contains(text, "restored whole") {
		t.Errorf("nothing is lost: %s", text)
	}
	exec("UPDATE data_pack SET lost_at = clock_timestamp() WHERE n = 3")
	_, doc = b.get("/volumes/" + vol)
	if text := doc.Find("main").Text(); !strings.Contains(text, "Snapshots that cannot be restored whole: 3.") ||
		!strings.Contains(text, "The last one that can is 2") {
		t.Errorf("%s", text)
	}
	rows := doc.Find("#snapshots tbody tr")
	if !strings.Contains(rows.Eq(0).Text(), "cannot be restored whole") ||
		strings.Contains(rows.Eq(1).Text(), "cannot be restored whole") {
		t.Errorf("%s", rows.Text())
	}
	exec("UPDATE data_pack SET lost_at = clock_timestamp()")
	if _, doc = b.get("/volumes/" + vol); !strings.Contains(doc.Find("main").Text(), "None can.") {
		t.Errorf("%s", doc.Find("main").Text())
	}
	exec(`INSERT INTO notice (id, org_id, dedupe_key, severity, title, body, object) VALUES (gen_random_uuid(), $1, 'k', 'bad',
		'A part is lost', 'x', $2)`, b.org(), vol)
	if _, doc = b.get("/notices"); doc.Find(`main a[href="/volumes/`+vol+`"]`).Length() == 0 {
		t.Errorf("%s", doc.Find("main").Text())
	}
}
