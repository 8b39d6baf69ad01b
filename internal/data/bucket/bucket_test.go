package bucket

import (
	"bytes"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/data/store"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/seal"
	"github.com/musterhq/muster/internal/testing/dbtest"
	"github.com/musterhq/muster/internal/testing/fleettest"
	"github.com/musterhq/muster/internal/testing/s3test"
)

type world struct {
	*fleettest.World
	t     *testing.T
	d     *db.DB
	b     *Buckets
	who   account.Principal
	store *s3test.Gateway
	log   *bytes.Buffer
}

func newWorld(t *testing.T) *world {
	t.Helper()
	d := dbtest.New(t)
	w := &world{World: fleettest.New(t, d), t: t, d: d, store: s3test.Start(t), log: &bytes.Buffer{}}
	w.b = New(d, Config{Box: w.Box(), AnyAddress: true, Log: slog.New(slog.NewTextHandler(w.log, nil))})
	w.who = w.SignUp("renter")
	return w
}

// new is a bucket that the store of the test has.
func (w *world) new(name string) NewBucket {
	return NewBucket{
		Name:   name,
		Target: Target{Endpoint: w.store.Config.Endpoint, Bucket: w.store.Config.Bucket, Prefix: "/runs/a/"},
		Key:    Credentials{w.store.Config.Access, w.store.Config.Secret},
	}
}

func (w *world) create(name string) Bucket {
	w.t.Helper()
	b, _, err := w.b.Create(w.t.Context(), w.who, w.new(name), idem.Request{})
	w.Must(err)
	return b
}

// wantField fails unless err is Invalid in one field, with a message.
func wantField(t *testing.T, what string, err error, field, message string) {
	t.Helper()
	f := fault.From(err)
	if f == nil || f.Kind != fault.Invalid || len(f.Fields) != 1 || f.Fields[0].Location != field ||
		!strings.Contains(f.Fields[0].Message, message) {
		t.Errorf("%s: %v, want %s: %s", what, err, field, message)
	}
}

func TestCreate_StoresWhatTheStoreAccepts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	made := w.create("results")
	if made.Target.Region != DefaultRegion || made.Target.Prefix != "runs/a" || made.Mode != ReadWrite ||
		made.Problem != "" {
		t.Errorf("%+v", made)
	}
	got, err := w.b.Get(t.Context(), w.who.Org, made.ID)
	w.Must(err)
	if !got.CheckedAt.Equal(made.CheckedAt) || got.Target != made.Target {
		t.Errorf("%+v, want %+v", got, made)
	}
	_, _, err = w.b.Create(t.Context(), w.who, w.new("results"), idem.Request{})
	if !fault.Is(err, fault.Conflict) {
		t.Errorf("a second one of the name: %v", err)
	}
	if left := w.objects(); len(left) != 0 {
		t.Errorf("the check left %q in the bucket", left)
	}
}

// objects are the keys that the store has in the bucket.
func (w *world) objects() (keys []string) {
	w.t.Helper()
	s, err := store.OpenS3(w.store.Config)
	w.Must(err)
	for o, err := range s.List(w.t.Context(), "", "") {
		w.Must(err)
		keys = append(keys, o.Key)
	}
	return keys
}

// Each thing that can be wrong is named by its field, and nothing is stored then.
func TestCreate_NamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for what, c := range map[string]struct {
		change         func(*NewBucket)
		field, message string
	}{
		"name":            {func(n *NewBucket) { n.Name = "No Name" }, "name", "lower-case"},
		"mode":            {func(n *NewBucket) { n.Mode = "ranks" }, "mode", "rw or ro"},
		"scheme":          {func(n *NewBucket) { n.Target.Endpoint = "ftp://example.com" }, "endpoint", "https://"},
		"no address":      {func(n *NewBucket) { n.Target.Endpoint = "" }, "endpoint", "is not an address"},
		"path":            {func(n *NewBucket) { n.Target.Endpoint += "/muster" }, "endpoint", "must end after the host"},
		"query":           {func(n *NewBucket) { n.Target.Endpoint += "/?a=b" }, "endpoint", "must end after the host"},
		"user":            {func(n *NewBucket) { n.Target.Endpoint = "https://a:b@example.com" }, "endpoint", "credentials"},
		"region's shape":  {func(n *NewBucket) { n.Target.Region = "here/there" }, "region", "want a region"},
		"bucket's shape":  {func(n *NewBucket) { n.Target.Bucket = "a/b" }, "bucket", "is not the name"},
		"prefix":          {func(n *NewBucket) { n.Target.Prefix = "a/../b" }, "prefix", "parts"},
		"prefix's signs":  {func(n *NewBucket) { n.Target.Prefix = "a b" }, "prefix", "visible"},
		"no key":          {func(n *NewBucket) { n.Key.AccessKeyID = "" }, "access_key_id", "want the id"},
		"no secret":       {func(n *NewBucket) { n.Key.Secret = "" }, "secret_access_key", "want the secret"},
		"unknown key":     {func(n *NewBucket) { n.Key.AccessKeyID = "nobody" }, "access_key_id", "does not know"},
		"wrong secret":    {func(n *NewBucket) { n.Key.Secret = "wrong" }, "secret_access_key", "does not accept"},
		"missing bucket":  {func(n *NewBucket) { n.Target.Bucket = "nothing" }, "bucket", "has no bucket nothing"},
		"closed port":     {func(n *NewBucket) { n.Target.Endpoint = "http://" + closedPort(t) }, "endpoint", "reached"},
		"unknown name":    {func(n *NewBucket) { n.Target.Endpoint = "http://none.invalid" }, "endpoint", "resolved"},
		"TLS is not here": {func(n *NewBucket) { n.Target.Endpoint = "https" + n.Target.Endpoint[4:] }, "endpoint", "TLS"},
	} {
		n := w.new("results")
		c.change(&n)
		_, _, err := w.b.Create(t.Context(), w.who, n, idem.Request{})
		wantField(t, what, err, c.field, c.message)
	}
	if all, err := w.b.List(t.Context(), w.who.Org); err != nil || len(all) != 0 {
		t.Errorf("%+v %v", all, err)
	}
}

// closedPort returns an address at which nothing listens.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// No request goes to a private network: not by an address, nor by a name that resolves there.
func TestCreate_StaysOnTheInternet(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	inside := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(inside.Close)
	strict := New(nil, Config{})
	n := NewBucket{Name: "results", Target: Target{Bucket: "muster"}, Key: Credentials{"a", "s"}}
	for _, host := range []string{"127.0.0.1", "localhost", "10.1.2.3", "169.254.169.254", "[::1]", "[fd00::1]",
		"100.64.1.1", "metadata.google.internal", "[::ffff:127.0.0.1]", "0.0.0.0"} {
		n.Target.Endpoint = "https://" + host
		_, _, err := strict.Create(t.Context(), account.Principal{}, n, idem.Request{})
		wantField(t, host, err, "endpoint", "is not on the internet")
	}
	n.Target.Endpoint = "http://example.com"
	_, _, err := strict.Create(t.Context(), account.Principal{}, n, idem.Request{})
	wantField(t, "http", err, "endpoint", "https://")

	// A name that passes every look at it, and resolves to this machine.
	n.Target.Endpoint = strings.Replace(inside.URL, "127.0.0.1", "localhost", 1)
	n.Target.Region = DefaultRegion
	err = strict.try(t.Context(), n.Target, ReadOnly, n.Key)
	wantField(t, "a name", err, "endpoint", "is not on the internet")
	if asked.Load() != 0 {
		t.Errorf("%d requests reached the private network", asked.Load())
	}
}

// A store cannot send the check elsewhere, nor make its texts appear in an answer.
func TestTry_HostileStore(t *testing.T) {
	t.Parallel()
	var redirected atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { redirected.Add(1) }))
	t.Cleanup(other.Close)
	b := New(nil, Config{AnyAddress: true})
	for what, c := range map[string]struct {
		answer         http.HandlerFunc
		field, message string
	}{
		"a redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		}, "endpoint", "the store answers 307"},
		"a code that is a text": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusTeapot)
			_, _ = w.Write([]byte("<Error><Code>call +1 555 now</Code><Message>win</Message></Error>"))
		}, "endpoint", "the store answers 418 I'm a teapot"},
		"a region that is a text": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte("<Error><Code>AuthorizationHeaderMalformed</Code><Region>call me</Region></Error>"))
		}, "region", "not in us-east-1"},
		"its region": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte("<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-3</Region></Error>"))
		}, "region", "not in us-east-1, but in eu-west-3"},
		"a page": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusOK)
			_, _ = w.Write([]byte("<html><body>hello</body></html>"))
		}, "endpoint", "not that of an S3-compatible store"},
		"no list": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte("<Error><Code>AccessDenied</Code></Error>"))
		}, "access_key_id", "may not list the bucket"},
	} {
		srv := httptest.NewServer(c.answer)
		t.Cleanup(srv.Close)
		err := b.try(t.Context(), Target{Endpoint: srv.URL, Region: DefaultRegion, Bucket: "muster"}, ReadWrite,
			Credentials{"a", "s"})
		wantField(t, what, err, c.field, c.message)
		if strings.Contains(err.Error(), "call") || strings.Contains(err.Error(), "win") {
			t.Errorf("%s is shown: %v", what, err)
		}
	}
	if redirected.Load() != 0 {
		t.Error("a redirect was followed")
	}
}

// A key that may only read is refused for rw, and is enough for ro.
func TestTry_ReadOnlyKey(t *testing.T) {
	t.Parallel()
	const empty = `<ListBucketResult><Name>muster</Name><KeyCount>0</KeyCount><MaxKeys>1</MaxKeys></ListBucketResult>`
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = w.Write([]byte(empty))
			return
		}
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte("<Error><Code>AccessDenied</Code></Error>"))
	}))
	t.Cleanup(srv.Close)
	b := New(nil, Config{AnyAddress: true})
	to := Target{Endpoint: srv.URL, Region: DefaultRegion, Bucket: "muster"}
	if err := b.try(t.Context(), to, ReadOnly, Credentials{"a", "s"}); err != nil {
		t.Error(err)
	}
	err := b.try(t.Context(), to, ReadWrite, Credentials{"a", "s"})
	wantField(t, "rw", err, "mode", "may not write to the bucket: allow it, or choose ro")
}

// The secret is stored sealed, bound to its bucket, and is in no answer, log or audit event.
func TestSecretIsSealed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	made := w.create("results")
	secret := w.store.Config.Secret
	var sealed []byte
	w.Must(w.d.Pool.QueryRow(t.Context(), "SELECT secret FROM bucket WHERE id = $1", made.ID).Scan(&sealed))
	if bytes.Contains(sealed, []byte(secret)) {
		t.Error("the secret is stored in clear")
	}
	if got, err := w.Box().Open(sealed, belongs(made.ID)); err != nil || string(got) != secret {
		t.Errorf("%q %v", got, err)
	}
	if _, err := w.Box().Open(sealed, belongs(id.New[id.Bucket]())); err == nil {
		t.Error("the secret opens in another bucket's row")
	}
	var events string
	w.Must(w.d.Pool.QueryRow(t.Context(),
		"SELECT string_agg(to_jsonb(e)::text, '') FROM audit_event e WHERE action LIKE 'bucket.%'").Scan(&events))
	if !strings.Contains(events, "bucket.create") || strings.Contains(events, secret) ||
		strings.Contains(w.log.String(), secret) {
		t.Errorf("%s\n%s", events, w.log)
	}
}

func TestRotate_OnlyToWhatTheStoreAccepts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	made := w.create("results")
	_, err := w.b.Rotate(t.Context(), w.who, made.ID, Credentials{w.store.Config.Access, "wrong"})
	wantField(t, "a wrong secret", err, "secret_access_key", "does not accept")
	if checked, _, err := w.b.Check(t.Context(), w.who, made.ID, idem.Request{}); err != nil || checked.Problem != "" {
		t.Errorf("after a refused rotation: %+v %v", checked, err)
	}
	w.Exec("UPDATE bucket SET secret = $1", w.Box().Seal([]byte("revoked"), belongs(made.ID)))
	checked, _, err := w.b.Check(t.Context(), w.who, made.ID, idem.Request{})
	if err != nil || !strings.Contains(checked.Problem, "secret_access_key: the store does not accept it") {
		t.Errorf("%+v %v", checked, err)
	}
	if got, err := w.b.Get(t.Context(), w.who.Org, made.ID); err != nil || got.Problem != checked.Problem {
		t.Errorf("the check is not stored: %+v %v", got, err)
	}
	fixed, err := w.b.Rotate(t.Context(), w.who, made.ID, Credentials{w.store.Config.Access, w.store.Config.Secret})
	if err != nil || fixed.Problem != "" || !fixed.CheckedAt.After(checked.CheckedAt) {
		t.Errorf("%+v %v", fixed, err)
	}
}

// A store that is away is a problem of the bucket, not an error of the check.
func TestCheck_StoreIsAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	made := w.create("results")
	w.store.Kill()
	checked, _, err := w.b.Check(t.Context(), w.who, made.ID, idem.Request{})
	if err != nil || !strings.Contains(checked.Problem, "endpoint: the address cannot be reached") {
		t.Errorf("%+v %v", checked, err)
	}
	w.store.Run()
	if checked, _, err = w.b.Check(t.Context(), w.who, made.ID, idem.Request{}); err != nil || checked.Problem != "" {
		t.Errorf("%+v %v", checked, err)
	}
}

// Another organisation's bucket is not found, and stays.
func TestOthersBucketsAreNotFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	made := w.create("results")
	eve := w.SignUp("eve")
	key := Credentials{w.store.Config.Access, w.store.Config.Secret}
	_, err := w.b.Get(t.Context(), eve.Org, made.ID)
	_, err2 := w.b.Rotate(t.Context(), eve, made.ID, key)
	_, _, err3 := w.b.Check(t.Context(), eve, made.ID, idem.Request{})
	for _, err := range []error{err, err2, err3, w.b.Delete(t.Context(), eve, made.ID)} {
		if !fault.Is(err, fault.NotFound) {
			t.Errorf("%v", err)
		}
	}
	w.Must(w.b.Delete(t.Context(), w.who, made.ID))
	if err := w.b.Delete(t.Context(), w.who, made.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("deleted twice: %v", err)
	}
}

func TestCreate_Quota(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create("first")
	w.Exec(`INSERT INTO bucket (id, org_id, name, endpoint, region, bucket, prefix, mode, access_key_id, secret, created_by)
		SELECT gen_random_uuid(), org_id, 'b' || n, endpoint, region, bucket, prefix, mode, access_key_id, secret, created_by
		FROM bucket, generate_series(1, $1) n`, MaxPerOrg-1)
	_, _, err := w.b.Create(t.Context(), w.who, w.new("last"), idem.Request{})
	if !fault.Is(err, fault.QuotaExceeded) {
		t.Errorf("%v", err)
	}
}

// Secrets that the platform's previous secret sealed are sealed again, and then open with the new one alone.
func TestReseal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	made := w.create("results")
	fresh := bytes.Repeat([]byte{9}, 32)
	both, err := seal.NewRotatingBox(fresh, bytes.Repeat([]byte{7}, 32)) // the one of fleettest
	w.Must(err)
	alone, err := seal.NewBox(fresh)
	w.Must(err)
	if n, err := New(w.d, Config{Box: both}).Reseal(t.Context()); err != nil || n != 1 {
		t.Fatalf("%d %v", n, err)
	}
	if n, err := New(w.d, Config{Box: both}).Reseal(t.Context()); err != nil || n != 0 {
		t.Errorf("sealed twice: %d %v", n, err)
	}
	checked, _, err := New(w.d, Config{Box: alone, AnyAddress: true}).Check(t.Context(), w.who, made.ID, idem.Request{})
	if err != nil || checked.Problem != "" {
		t.Errorf("%+v %v", checked, err)
	}
}

// The certificate of a store has to be valid for its address.
func TestTry_Certificate(t *testing.T) {
	t.Parallel()
	srv := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(srv.Close)
	err := New(nil, Config{AnyAddress: true}).try(t.Context(),
		Target{Endpoint: srv.URL, Region: DefaultRegion, Bucket: "muster"}, ReadOnly, Credentials{"a", "s"})
	wantField(t, "an untrusted certificate", err, "endpoint", "certificate")
}
