// Package releases serves the agent to hosts that are about to enrol: the install script at /install-agent.sh, and
// below /agent/VERSION/ the archives with their checksums and signature. The script that it serves contains the
// platform's addresses and the hashes of the archives, so that one command installs and enrols a host.
package releases

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/musterhq/muster/deploy"
)

// ScriptPath is where the install script is.
const ScriptPath = "/install-agent.sh"

// ArchivesPath is where the folders of the versions are.
const ArchivesPath = "/agent/"

// Config says what is served.
type Config struct {
	// Dir is a folder as scripts/release fills it: muster-agent-VERSION-linux-ARCH.tar.gz and SHA256SUMS, and
	// SHA256SUMS.sig and release.pub if it is signed. "" = nothing is served.
	Dir string
	// Prepare fills Dir before the first answer; nil = it is filled.
	Prepare func() error

	PublicURL string // of this server, as hosts reach it
	AgentURL  string // the platform's address for hosts
	CA        string // PEM certificates to verify AgentURL with; "" = the system's
	Log       *slog.Logger
}

// Releases serves one release of the agent. It is safe for concurrent use.
type Releases struct {
	cfg     Config
	prepare func() error
}

// New returns Releases; it starts nothing.
func New(cfg Config) *Releases {
	r := &Releases{cfg: cfg, prepare: func() error { return nil }}
	if cfg.Prepare != nil {
		r.prepare = sync.OnceValue(cfg.Prepare)
	}
	return r
}

// Command returns the command that installs the agent on a host and enrols it with a token. The token is no argument of
// any process: printf is part of the shell.
func Command(publicURL, token string) string {
	return fmt.Sprintf("curl -fsSL %s%s -o install-agent.sh && "+
		"printf %%s '%s' | sudo bash install-agent.sh --token-file -", publicURL, ScriptPath, token)
}

// ServeHTTP implements http.Handler.
func (s *Releases) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "This address can only be read.", http.StatusMethodNotAllowed)
		return
	}
	rel, err := s.release()
	if err != nil {
		s.cfg.Log.ErrorContext(r.Context(), "the agent's release cannot be served", "dir", s.cfg.Dir, "err", err)
		http.Error(w, "The agent's release cannot be read. The operator of this platform finds the cause in its log.",
			http.StatusInternalServerError)
		return
	}
	if rel == nil {
		http.Error(w, "This platform serves no agent: MUSTER_AGENT_RELEASES is not set. Install the agent from an archive; "+
			"see /docs/hosts.", http.StatusNotFound)
		return
	}
	w.Header().Set("Cache-Control", "no-cache")
	if r.URL.Path == ScriptPath {
		w.Header().Set("Content-Type", "text/x-shellscript; charset=utf-8")
		_, _ = w.Write(s.script(rel))
		return
	}
	name, ok := strings.CutPrefix(r.URL.Path, ArchivesPath+rel.version+"/")
	if !ok || !slices.Contains(rel.files, name) {
		http.Error(w, "There is no such file. The release is in "+ArchivesPath+rel.version+"/: "+
			strings.Join(rel.files, ", "), http.StatusNotFound)
		return
	}
	s.serveFile(w, r, name)
}

func (s *Releases) serveFile(w http.ResponseWriter, r *http.Request, name string) {
	f, err := os.OpenInRoot(s.cfg.Dir, name)
	if err != nil {
		http.Error(w, "This file of the release is missing.", http.StatusNotFound)
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		http.Error(w, "This file of the release cannot be read.", http.StatusInternalServerError)
		return
	}
	contentType := "application/octet-stream"
	if strings.HasSuffix(name, ".tar.gz") {
		contentType = "application/gzip"
	}
	w.Header().Set("Content-Type", contentType)
	http.ServeContent(w, r, "", info.ModTime(), f)
}

// Check returns why the folder cannot be served, or nil.
func Check(dir string) error {
	rel, err := readRelease(dir)
	if err != nil {
		return err
	}
	for _, name := range rel.files {
		if _, err := os.Stat(dir + "/" + name); err != nil && strings.HasSuffix(name, ".tar.gz") {
			return fmt.Errorf("SHA256SUMS names %s, which is not there", name)
		}
	}
	return nil
}

// release is what a folder holds.
type release struct {
	version string
	sums    map[string]string // SHA-256 in hexadecimal by architecture
	files   []string          // that are served
}

// release returns the release that is served now; nil if none is configured. The folder may be replaced while the
// server runs.
func (s *Releases) release() (*release, error) {
	if s.cfg.Dir == "" {
		return nil, nil
	}
	if err := s.prepare(); err != nil {
		return nil, err
	}
	return readRelease(s.cfg.Dir)
}

var archiveLine = regexp.MustCompile(
	`^([0-9a-f]{64}) [ *](muster-agent-([A-Za-z0-9][A-Za-z0-9._+-]{0,63})-linux-(amd64|arm64)\.tar\.gz)$`)

func readRelease(dir string) (*release, error) {
	sums, err := os.ReadFile(dir + "/SHA256SUMS")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s has no SHA256SUMS: scripts/release makes it", dir)
	}
	if err != nil {
		return nil, err
	}
	rel := &release{sums: map[string]string{}, files: []string{"SHA256SUMS", "SHA256SUMS.sig", "release.pub"}}
	for lines := bufio.NewScanner(bytes.NewReader(sums)); lines.Scan(); {
		m := archiveLine.FindStringSubmatch(lines.Text())
		if m == nil {
			continue // of another program
		}
		if rel.version != "" && rel.version != m[3] {
			return nil, fmt.Errorf("%s/SHA256SUMS has the versions %s and %s; want one", dir, rel.version, m[3])
		}
		rel.version, rel.sums[m[4]] = m[3], m[1]
		rel.files = append(rel.files, m[2])
	}
	if rel.version == "" {
		return nil, fmt.Errorf("%s/SHA256SUMS names no archive muster-agent-VERSION-linux-ARCH.tar.gz", dir)
	}
	return rel, nil
}

// blank is the line of the install script that a platform fills in.
const blank = "served_archives='' served_version='' served_sums='' served_url='' served_ca=''\n"

func (s *Releases) script(rel *release) []byte {
	var sums []string
	for _, arch := range []string{"amd64", "arm64"} {
		if rel.sums[arch] != "" {
			sums = append(sums, arch+"="+rel.sums[arch])
		}
	}
	filled := fmt.Sprintf("served_archives=%s\nserved_version=%s\nserved_sums=%s\nserved_url=%s\nserved_ca=%s\n",
		quote(s.cfg.PublicURL+ArchivesPath+rel.version), quote(rel.version), quote(strings.Join(sums, " ")),
		quote(s.cfg.AgentURL), quote(strings.TrimSpace(s.cfg.CA)))
	return bytes.Replace(deploy.InstallScript, []byte(blank), []byte(filled), 1)
}

// quote returns s as one word of a POSIX shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
