package store

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// FolderPath is where a server serves its folder: FolderPath + key.
const FolderPath = "/data/v1/"

// Folder is a store in a folder of this machine, whose signed requests its Handler answers. It is for one machine: one
// server, or several that share the folder.
type Folder struct {
	dir  string
	base string // URL of FolderPath
	key  []byte // signs requests
	now  func() time.Time
}

// OpenFolder makes the folder if it does not exist. origin is where the Handler is reached, scheme://host[:port];
// secret has at least 32 bytes and is the same on all servers.
func OpenFolder(dir, origin string, secret []byte) (*Folder, error) {
	if len(secret) < 32 {
		return nil, errors.New("the secret of a store in a folder has fewer than 32 bytes")
	}
	if err := os.MkdirAll(filepath.Join(dir, "tmp"), 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of the store: %w", err)
	}
	m := hmac.New(sha256.New, secret)
	m.Write([]byte("muster store folder v1"))
	return &Folder{dir: dir, base: strings.TrimSuffix(origin, "/") + FolderPath, key: m.Sum(nil), now: time.Now}, nil
}

// keyShape is the form of keys. Nothing else becomes a path.
var keyShape = regexp.MustCompile(`^[a-z]{1,8}/[a-z0-9_]{1,64}/[a-z0-9]{1,64}$`)

func (f *Folder) path(key string) (string, error) {
	if !keyShape.MatchString(key) {
		return "", fmt.Errorf("%.100q is not a key", key)
	}
	return filepath.Join(f.dir, filepath.FromSlash(key)), nil
}

// claims are what a signed request is for.
type claims struct {
	method, key string
	until       int64 // unix seconds
	bytes       int64 // PUT
	sum         string
}

func (f *Folder) sign(c claims) Request {
	q := url.Values{"until": {strconv.FormatInt(c.until, 10)}, "sig": {f.mac(c)}}
	header := map[string]string{}
	if c.method == http.MethodPut {
		q.Set("bytes", strconv.FormatInt(c.bytes, 10))
		q.Set("sha256", c.sum)
	}
	return Request{Method: c.method, URL: f.base + c.key + "?" + q.Encode(), Header: header}
}

func (f *Folder) mac(c claims) string {
	m := hmac.New(sha256.New, f.key)
	fmt.Fprintf(m, "%s\n%s\n%d\n%d\n%s", c.method, c.key, c.until, c.bytes, c.sum)
	return hex.EncodeToString(m.Sum(nil))
}

// SignPut implements Store.
func (f *Folder) SignPut(_ context.Context, key string, sum [32]byte, bytes int64, until time.Time) (Request, error) {
	if _, err := f.path(key); err != nil {
		return Request{}, err
	}
	return f.sign(claims{http.MethodPut, key, until.Unix(), bytes, hex.EncodeToString(sum[:])}), nil
}

// SignGet implements Store.
func (f *Folder) SignGet(_ context.Context, key string, until time.Time) (Request, error) {
	if _, err := f.path(key); err != nil {
		return Request{}, err
	}
	return f.sign(claims{method: http.MethodGet, key: key, until: until.Unix()}), nil
}

// Handler answers signed requests below FolderPath as an S3 store would: 200, 400 for another body than was signed, 403
// for a request that is not signed or too late, 404, 412 for an object that exists.
func (f *Folder) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := strings.TrimPrefix(r.URL.Path, FolderPath)
		c, ok := f.verify(r, key)
		if !ok {
			http.Error(w, "the request is not signed, or its time is over", http.StatusForbidden)
			return
		}
		if c.method == http.MethodPut {
			f.servePut(w, r, c)
			return
		}
		f.serveGet(w, r, key)
	})
}

func (f *Folder) verify(r *http.Request, key string) (c claims, ok bool) {
	q := r.URL.Query()
	until, err := strconv.ParseInt(q.Get("until"), 10, 64)
	if err != nil || !keyShape.MatchString(key) || f.now().Unix() > until {
		return c, false
	}
	c = claims{method: r.Method, key: key, until: until}
	switch r.Method {
	case http.MethodPut:
		if c.bytes, err = strconv.ParseInt(q.Get("bytes"), 10, 64); err != nil {
			return c, false
		}
		c.sum = q.Get("sha256")
	case http.MethodHead:
		c.method = http.MethodGet
	case http.MethodGet:
	default:
		return c, false
	}
	return c, hmac.Equal([]byte(q.Get("sig")), []byte(f.mac(c)))
}

func (f *Folder) serveGet(w http.ResponseWriter, r *http.Request, key string) {
	path, _ := f.path(key) // verify has checked the key
	file, err := os.Open(path)
	if err != nil {
		http.Error(w, "object not found", http.StatusNotFound)
		return
	}
	defer file.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", time.Time{}, file)
}

func (f *Folder) servePut(w http.ResponseWriter, r *http.Request, c claims) {
	if r.ContentLength != c.bytes {
		http.Error(w, "the body has another length than was signed", http.StatusBadRequest)
		return
	}
	err := f.store(c.key, io.LimitReader(r.Body, c.bytes), c.bytes, c.sum)
	switch {
	case errors.Is(err, fs.ErrExist):
		http.Error(w, "the object exists", http.StatusPreconditionFailed)
	case errors.Is(err, errOther):
		http.Error(w, "the body is not what was signed", http.StatusBadRequest)
	case err != nil:
		http.Error(w, "the object cannot be stored", http.StatusInternalServerError)
	}
}

var errOther = errors.New("the body is not what was signed")

// store writes an object and makes it durable. An object appears whole or not at all, and replaces none.
func (f *Folder) store(key string, body io.Reader, bytes int64, sum string) error {
	path, err := f.path(key)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(path); err == nil {
		return fs.ErrExist
	}
	tmp, err := os.CreateTemp(filepath.Join(f.dir, "tmp"), "put-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(tmp, h), body)
	if err != nil {
		return err
	}
	if n != bytes || hex.EncodeToString(h.Sum(nil)) != sum {
		return errOther
	}
	if err := tmp.Sync(); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := os.Link(tmp.Name(), path); err != nil { // fails if the object exists
		return err
	}
	for _, dir := range []string{filepath.Dir(path), filepath.Dir(filepath.Dir(path)), f.dir} {
		if err := syncDir(dir); err != nil {
			return err
		}
	}
	return nil
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// Head implements Store. It reads the whole object: what it returns is what is there.
func (f *Folder) Head(_ context.Context, key string) (o Object, err error) {
	path, err := f.path(key)
	if err != nil {
		return o, err
	}
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return o, ErrNotFound
	}
	if err != nil {
		return o, err
	}
	defer file.Close()
	h := sha256.New()
	if o.Bytes, err = io.Copy(h, file); err != nil {
		return o, err
	}
	o.Sum = [32]byte(h.Sum(nil))
	return o, nil
}

// Read implements Store.
func (f *Folder) Read(_ context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	path, err := f.path(key)
	if err != nil {
		return nil, err
	}
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{io.NewSectionReader(file, offset, length), file}, nil
}

// Put implements Store.
func (f *Folder) Put(_ context.Context, key string, body []byte) error {
	sum := sha256.Sum256(body)
	return f.store(key, bytes.NewReader(body), int64(len(body)), hex.EncodeToString(sum[:]))
}

// Delete implements Store.
func (f *Folder) Delete(_ context.Context, key string) error {
	path, err := f.path(key)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Probe implements Store: it stores, reads and removes an object. What the Handler refuses, tests check.
func (f *Folder) Probe(ctx context.Context) error {
	var name [8]byte
	_, _ = rand.Read(name[:]) // never fails
	key := "probe/x/" + hex.EncodeToString(name[:])
	if err := f.Put(ctx, key, name[:]); err != nil {
		return fmt.Errorf("the folder %s cannot be written: %w", f.dir, err)
	}
	o, err := f.Head(ctx, key)
	if err != nil {
		return fmt.Errorf("the folder %s cannot be read: %w", f.dir, err)
	}
	if o.Bytes != int64(len(name)) {
		return fmt.Errorf("the folder %s does not return what was written", f.dir)
	}
	return f.Delete(ctx, key)
}
