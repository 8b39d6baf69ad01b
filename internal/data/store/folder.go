package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Folder is a store in a folder of this machine, whose signed requests its Handler answers. It is for one machine: one
// server, or several that share the folder.
type Folder struct {
	signer
	dir string
}

// OpenFolder makes the folder if it does not exist. origin is where the Handler is reached, scheme://host[:port];
// secret has at least 32 bytes and is the same on all servers.
func OpenFolder(dir, origin string, secret []byte) (*Folder, error) {
	sign, err := newSigner(origin, secret)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(dir, "tmp"), 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of the store: %w", err)
	}
	f := &Folder{signer: sign, dir: dir}
	return f, f.Tidy()
}

// leftAfter is how long nothing was written to a file in tmp before it counts as left by a server that was killed. A
// request to store an object holds for minutes.
const leftAfter = time.Hour

// Tidy removes what uploads have left whose server was killed. It is safe while other servers share the folder.
func (f *Folder) Tidy() error {
	dir := filepath.Join(f.dir, "tmp")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("read the store's folder of uploads: %w", err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) { // its upload has ended
			continue
		}
		if err != nil {
			return fmt.Errorf("read the store's folder of uploads: %w", err)
		}
		if !strings.HasPrefix(e.Name(), "put-") || !info.Mode().IsRegular() || f.now().Sub(info.ModTime()) < leftAfter {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove what an upload has left: %w", err)
		}
	}
	return nil
}

func (f *Folder) path(key string) (string, error) {
	if err := checkKey(key); err != nil {
		return "", err
	}
	return filepath.Join(f.dir, filepath.FromSlash(key)), nil
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

// Handler answers signed requests below SignedPath as an S3 store would: 200, 400 for another body than was signed, 403
// for a request that is not signed or too late, 404, 412 for an object that exists.
func (f *Folder) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := strings.TrimPrefix(r.URL.Path, SignedPath)
		c, ok := f.verify(r, key)
		if !ok {
			http.Error(w, notSigned, http.StatusForbidden)
			return
		}
		if c.method == http.MethodPut {
			f.servePut(w, r, c)
			return
		}
		f.serveGet(w, r, key)
	})
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
		http.Error(w, otherLength, http.StatusBadRequest)
		return
	}
	answerPut(w, f.store(c.key, io.LimitReader(r.Body, c.bytes), c.bytes, c.sum))
}

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
func (f *Folder) Delete(_ context.Context, keys ...string) error {
	for _, key := range keys {
		path, err := f.path(key)
		if err != nil {
			return err
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// List implements Store.
func (f *Folder) List(ctx context.Context, prefix, after string) iter.Seq2[Listed, error] {
	return func(yield func(Listed, error) bool) {
		err := filepath.WalkDir(f.dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(f.dir, path)
			key := filepath.ToSlash(rel)
			if err == nil && d.IsDir() && key != "." && passed(key+"/", prefix, after) {
				return fs.SkipDir
			}
			if d.IsDir() {
				return err
			}
			if err != nil || checkKey(key) != nil || !strings.HasPrefix(key, prefix) || key <= after {
				return err
			}
			info, err := d.Info()
			if errors.Is(err, fs.ErrNotExist) { // deleted meanwhile
				return nil
			}
			if err != nil {
				return err
			}
			if !yield(Listed{Key: key, Bytes: info.Size(), At: info.ModTime()}, nil) {
				return fs.SkipAll
			}
			return nil
		})
		if err != nil {
			yield(Listed{}, fmt.Errorf("list the folder of the store: %w", err))
		}
	}
}

// passed reports whether no key that begins with dir is to be listed. A page of a list then reads one folder, not all
// that come before it.
func passed(dir, prefix, after string) bool {
	if !strings.HasPrefix(dir, prefix) && !strings.HasPrefix(prefix, dir) {
		return true
	}
	return dir < after && !strings.HasPrefix(after, dir)
}

// Probe implements Store. What the Handler refuses, tests check.
func (f *Folder) Probe(ctx context.Context) error {
	p := newProbe()
	if err := f.Put(ctx, p.key, p.body); err != nil {
		return fmt.Errorf("the folder %s cannot be written: %w", f.dir, err)
	}
	return probeRest(ctx, f, p)
}
