package releases

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/musterhq/muster/deploy"
)

// Pack makes an unsigned release of the programs in bin for this machine's architecture. It is for muster dev, which
// serves its own build.
func Pack(dir, bin, version string) (err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("pack the agent: %w", err)
	}
	name := "muster-agent-" + version + "-linux-" + runtime.GOARCH + ".tar.gz"
	f, err := os.Create(filepath.Join(dir, name))
	if err != nil {
		return fmt.Errorf("pack the agent: %w", err)
	}
	defer f.Close()
	hash := sha256.New()
	if err := writeArchive(io.MultiWriter(f, hash), bin); err != nil {
		return fmt.Errorf("pack the agent: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("pack the agent: %w", err)
	}
	line := hex.EncodeToString(hash.Sum(nil)) + "  " + name + "\n"
	if err := os.WriteFile(filepath.Join(dir, "SHA256SUMS"), []byte(line), 0o644); err != nil {
		return fmt.Errorf("pack the agent: %w", err)
	}
	return nil
}

func writeArchive(to io.Writer, bin string) error {
	zip, err := gzip.NewWriterLevel(to, gzip.BestSpeed)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(zip)
	if err := addBytes(archive, "install-agent.sh", 0o755, deploy.InstallScript); err != nil {
		return err
	}
	for _, name := range []string{"muster-agent", "muster-guest"} {
		if err := addFile(archive, name, filepath.Join(bin, name)); err != nil {
			return err
		}
	}
	if err := addBytes(archive, "muster-agent.service", 0o644, deploy.AgentUnit); err != nil {
		return err
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return zip.Close()
}

func addBytes(to *tar.Writer, name string, mode int64, content []byte) error {
	if err := to.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(content))}); err != nil {
		return err
	}
	_, err := to.Write(content)
	return err
}

func addFile(to *tar.Writer, name, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := to.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: info.Size()}); err != nil {
		return err
	}
	_, err = io.Copy(to, f)
	return err
}
