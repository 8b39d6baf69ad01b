package fusemount

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhq/muster/agent/storage/fusemount/mounttest"
)

func TestCheckNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	p := Check(filepath.Join(t.TempDir(), "muster-mount"))
	if p == nil || p.Code != ProblemUnusable || !strings.Contains(p.Evidence, "muster-mount: no such file") ||
		!strings.Contains(p.Fix, "release") {
		t.Errorf("%+v", p)
	}
	if p := Check(mounttest.Program(t)); p != nil {
		t.Errorf("%+v", p)
	}
}
