package image

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// daemon pulls as Docker does: over HTTP from the loopback registry, verifying digests, keeping what it has.
type daemon struct {
	mu    sync.Mutex
	blobs map[string][]byte
	tags  map[string]string
	pulls atomic.Int32
	gate  chan struct{} // closed: pulls may go on
	late  chan struct{} // if set: pulls that are cancelled end once it is closed
	// killed is the error of KeepImage, as if the caller died before it returned.
	killed error
	size   int64 // what images unpack to; 0 = 100
}

func newDaemon() *daemon {
	d := &daemon{blobs: map[string][]byte{}, tags: map[string]string{}, gate: make(chan struct{})}
	close(d.gate)
	return d
}

func (d *daemon) PullImage(ctx context.Context, ref string, says func(layer, status string)) error {
	d.pulls.Add(1)
	select {
	case <-d.gate:
	case <-ctx.Done():
		if d.late != nil {
			<-d.late
		}
		return ctx.Err()
	}
	repo, digest, _ := strings.Cut(ref, "@")
	host, path, _ := strings.Cut(repo, "/")
	base := "http://" + host + "/v2/" + path
	raw, err := get(ctx, base+"/manifests/"+digest, digest)
	if err != nil {
		return err
	}
	var m v1.Manifest
	if err := json.Unmarshal(raw, &m); err != nil {
		return err
	}
	for _, desc := range append(m.Layers, m.Config) {
		h := desc.Digest.String()
		d.mu.Lock()
		_, have := d.blobs[h]
		d.mu.Unlock()
		if have {
			says(layerName(desc.Digest), "Already exists")
			continue
		}
		b, err := get(ctx, base+"/blobs/"+h, h)
		if err != nil {
			return err
		}
		says(layerName(desc.Digest), "Pull complete")
		d.mu.Lock()
		d.blobs[h] = b
		d.mu.Unlock()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tags[ref] = m.Config.Digest.String()
	return nil
}

func get(ctx context.Context, url, digest string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(b); res.StatusCode != 200 || "sha256:"+hex.EncodeToString(sum[:]) != digest {
		return nil, fmt.Errorf("%s: %s, %d bytes with another digest", url, res.Status, len(b))
	}
	return b, nil
}

func (d *daemon) KeepImage(_ context.Context, ref, tag string) (string, int64, error) {
	if d.killed != nil {
		return "", 0, d.killed
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tags[tag] = d.tags[ref]
	delete(d.tags, ref)
	return d.tags[tag], cmp.Or(d.size, 100), nil
}

func (d *daemon) FindImage(_ context.Context, tag string) (string, int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.tags[tag], 100, nil
}

func (d *daemon) ListImages(_ context.Context, repository string) ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []string
	for tag := range d.tags {
		if strings.HasPrefix(tag, repository+":") {
			out = append(out, tag)
		}
	}
	return out, nil
}

func (d *daemon) RemoveImage(_ context.Context, tag string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.tags, tag)
	return nil
}

func (d *daemon) holds(b []byte) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, have := range d.blobs {
		if bytes.Equal(have, b) {
			return true
		}
	}
	return false
}
