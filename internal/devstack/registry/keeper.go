package registry

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
)

// keeper stores every manifest that is put, which the library holds in memory only, and puts it again at the next
// start.
type keeper struct {
	dir  string
	next http.Handler
}

// manifest is one PUT request.
type manifest struct {
	Path string `json:"path"` // /v2/<name>/manifests/<tag or digest>
	Type string `json:"type"`
	Body []byte `json:"body"`
}

// maxManifest is the size that a registry must accept (OCI distribution spec).
const maxManifest = 4 << 20

func (k keeper) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodPut || !strings.Contains(req.URL.Path, "/manifests/") {
		k.next.ServeHTTP(w, req)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxManifest))
	if err != nil {
		http.Error(w, "the manifest is too large", http.StatusRequestEntityTooLarge)
		return
	}
	m := manifest{Path: req.URL.Path, Type: req.Header.Get("Content-Type"), Body: body}
	answer := k.put(m)
	if answer.Code == http.StatusCreated {
		if err := k.keep(m); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	for key, values := range answer.Header() {
		w.Header()[key] = values
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

func (k keeper) put(m manifest) *httptest.ResponseRecorder {
	req := httptest.NewRequest(http.MethodPut, m.Path, bytes.NewReader(m.Body))
	req.Header.Set("Content-Type", m.Type)
	answer := httptest.NewRecorder()
	k.next.ServeHTTP(answer, req)
	return answer
}

func (k keeper) keep(m manifest) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(m.Path))
	path := filepath.Join(k.dir, hex.EncodeToString(sum[:])+".json")
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// restore puts all manifests again. An index is refused before the images that it names exist, so refused manifests are
// retried in further rounds, as long as a round makes progress.
func (k keeper) restore() error {
	files, err := filepath.Glob(filepath.Join(k.dir, "*.json"))
	if err != nil {
		return err
	}
	var waiting []manifest
	for _, f := range files {
		var m manifest
		b, err := os.ReadFile(f)
		if err == nil {
			err = json.Unmarshal(b, &m)
		}
		if err != nil {
			return fmt.Errorf("read a kept manifest: %w", err)
		}
		waiting = append(waiting, m)
	}
	for len(waiting) > 0 {
		var refused []manifest
		var why string
		for _, m := range waiting {
			if answer := k.put(m); answer.Code != http.StatusCreated {
				refused, why = append(refused, m), answer.Body.String()
			}
		}
		if len(refused) == len(waiting) {
			return fmt.Errorf("the kept manifest %s is refused: %s", refused[0].Path, why)
		}
		waiting = refused
	}
	return nil
}
