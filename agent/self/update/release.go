package update

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

// These are the programs of a version.
const (
	agentFile = "muster-agent"
	guestFile = "muster-guest"
	mountFile = "muster-mount" // not in releases from before buckets
)

// These limit the size of a release.
const (
	maxList    = 64 << 10
	maxArchive = 512 << 20
	maxProgram = 512 << 20
)

// Keys parses the keys that the build has pinned: base64 of raw Ed25519 public keys, separated by commas. A build
// without keys accepts no release.
func Keys(pinned string) ([]ed25519.PublicKey, error) {
	var out []ed25519.PublicKey
	for _, k := range strings.FieldsFunc(pinned, func(r rune) bool { return r == ',' }) {
		b, err := base64.StdEncoding.DecodeString(k)
		if err != nil || len(b) != ed25519.PublicKeySize {
			return nil, errors.New("a pinned release key is not 32 bytes in base64")
		}
		out = append(out, b)
	}
	return out, nil
}

// source is where releases are downloaded from.
type source struct {
	client *http.Client
	keys   []ed25519.PublicKey
	arch   string
}

// fetch downloads and verifies the programs of a version and puts them into dir.
func (s source) fetch(ctx context.Context, base, version, dir string) error {
	if len(s.keys) == 0 {
		return errors.New("this agent was built without a release key: it cannot recognise a forged release")
	}
	list, err := s.get(ctx, base, "SHA256SUMS")
	if err != nil {
		return err
	}
	signature, err := s.get(ctx, base, "SHA256SUMS.sig")
	if err != nil {
		return err
	}
	if !s.signed(list, signature) {
		return errors.New("the list of hashes is not signed by a key this agent knows")
	}
	name := fmt.Sprintf("muster-agent-%s-linux-%s.tar.gz", version, s.arch)
	want, ok := listed(list, name)
	if !ok {
		return fmt.Errorf("the signed list has no %s", name)
	}
	archive, err := s.download(ctx, base, name, dir)
	if err != nil {
		return err
	}
	defer os.Remove(archive.Name())
	defer archive.Close()
	h := sha256.New()
	if _, err := io.Copy(h, archive); err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		return fmt.Errorf("%s has another hash than the signed list says: %s", name, got)
	}
	if _, err := archive.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return unpack(archive, dir)
}

func (s source) signed(list, signature []byte) bool {
	for _, k := range s.keys {
		if ed25519.Verify(k, list, signature) {
			return true
		}
	}
	return false
}

// listed returns the hash of a file from a list in the format of sha256sum.
func listed(list []byte, name string) (string, bool) {
	for lines := bufio.NewScanner(bytes.NewReader(list)); lines.Scan(); {
		hash, file, ok := strings.Cut(lines.Text(), "  ")
		if ok && file == name && len(hash) == 2*sha256.Size {
			return strings.ToLower(hash), true
		}
	}
	return "", false
}

func (s source) open(ctx context.Context, base, name string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(base, "/")+"/"+name, nil)
	if err != nil {
		return nil, err
	}
	res, err := s.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("fetch %s: %w", name, err)
	}
	if res.StatusCode != http.StatusOK {
		res.Body.Close()
		return nil, fmt.Errorf("fetch %s: %s", name, res.Status)
	}
	return res, nil
}

func (s source) get(ctx context.Context, base, name string) ([]byte, error) {
	res, err := s.open(ctx, base, name)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxList+1))
	if err == nil && len(b) > maxList {
		err = errors.New("it is too long")
	}
	if err != nil {
		return nil, fmt.Errorf("fetch %s: %w", name, err)
	}
	return b, nil
}

// download stores the archive in the folder of the new programs and returns it, positioned at its beginning.
func (s source) download(ctx context.Context, base, name, dir string) (*os.File, error) {
	res, err := s.open(ctx, base, name)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	f, err := os.CreateTemp(dir, ".archive-*")
	if err != nil {
		return nil, err
	}
	n, err := io.Copy(f, io.LimitReader(res.Body, maxArchive+1))
	if err == nil && n > maxArchive {
		err = errors.New("it is too long")
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("fetch %s: %w", name, err), f.Close(), os.Remove(f.Name()))
	}
	return f, nil
}

// unpack extracts the two programs, and nothing else, from an archive.
func unpack(archive io.Reader, dir string) error {
	z, err := gzip.NewReader(archive)
	if err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	found := map[string]bool{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("unpack: %w", err)
		}
		if h.Name != agentFile && h.Name != guestFile && h.Name != mountFile {
			continue
		}
		if h.Typeflag != tar.TypeReg || h.Size > maxProgram || found[h.Name] {
			return fmt.Errorf("unpack: %s in the archive is not one file", h.Name)
		}
		found[h.Name] = true
		if err := writeProgram(filepath.Join(dir, h.Name), r); err != nil {
			return fmt.Errorf("unpack: %w", err)
		}
	}
	if !found[agentFile] || !found[guestFile] {
		return fmt.Errorf("the archive does not hold %s and %s", agentFile, guestFile)
	}
	return nil
}

func writeProgram(path string, r io.Reader) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Sync(), f.Close())
}

// encrypted refuses requests that are not encrypted, except to the given exact host:port.
type encrypted struct {
	allow map[string]bool
	next  http.RoundTripper
}

func (e encrypted) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != "https" && !e.allow[req.URL.Host] {
		return nil, errors.New("the address of the release does not begin with https://")
	}
	return e.next.RoundTrip(req)
}
