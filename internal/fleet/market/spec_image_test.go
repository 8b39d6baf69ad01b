package market

import (
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/fault"
)

// Images as other tools write them are refused before anything is taken, and the message has the reference to write.
func TestSpec_ImageOfOtherToolsIsRefusedWithItsReference(t *testing.T) {
	t.Parallel()
	for image, want := range map[string]string{
		"docker://pytorch/pytorch:2.4.0":                "write pytorch/pytorch:2.4.0",
		"DOCKER://busybox":                              "write busybox",
		"oci://ghcr.io/me/x@sha256:" + digest:           "write ghcr.io/me/x@sha256:" + digest,
		"https://registry.test:5000/x/y":                "write registry.test:5000/x/y",
		"https://hub.docker.com/r/pytorch/pytorch/tags": "write pytorch/pytorch",
		"https://hub.docker.com/_/ubuntu":               "write ubuntu",
		"docker://nvcr.io#nvidia/pytorch:24.05-py3":     "write nvcr.io/nvidia/pytorch:24.05-py3",
		"nvcr.io#nvidia/pytorch:24.05-py3":              "write nvcr.io/nvidia/pytorch:24.05-py3",
		"/tmp/image.tar":                                "want [registry/]repository",
		"docker://":                                     "want [registry/]repository",
		"docker://docker://x":                           "want [registry/]repository",
		"Docker://UPPER/case":                           "want [registry/]repository",
		"docker.io/library/busybox:1":                   "",
		"docker://" + strings.Repeat("x", 2*maxImage):   "want [registry/]repository",
		"file:///tmp/image.tar":                         "want [registry/]repository",
		"docker-daemon:x/y:1":                           "want [registry/]repository",
		"docker-daemon://x/y:1":                         "write x/y:1",
	} {
		s := DefaultSpec()
		s.Image = image
		err := s.Validate(true)
		if want == "" {
			if err != nil {
				t.Errorf("%s: %v", image, err)
			}
		} else if f := fault.From(err); f == nil || len(f.Fields) != 1 || f.Fields[0].Location != "image" ||
			!strings.Contains(f.Message, want) {
			t.Errorf("%s: %v, want %q", image, err, want)
		}
	}
}

var digest = strings.Repeat("0a", 32)
