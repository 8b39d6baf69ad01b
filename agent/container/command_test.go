package container

import (
	"strings"
	"testing"

	dockerspec "github.com/moby/docker-image-spec/specs-go/v1"
)

func TestACommandComesAfterTheEntryPoint(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ entry, image, renter, want string }{
		{"", "", "", ""},
		{"", "python3", "", "python3"},
		{"", "python3", "train.py now", "train.py now"},
		{"/init", "serve", "", "/init serve"},
		{"/init", "serve", "train", "/init train"},
		{"/init", "", "", "/init"},
	} {
		img := &dockerspec.DockerOCIImageConfig{}
		img.Entrypoint, img.Cmd = strings.Fields(c.entry), strings.Fields(c.image)
		if got := strings.Join(commandLine(img, strings.Fields(c.renter)), " "); got != c.want {
			t.Errorf("entry point %q, image's command %q, renter's %q: runs %q, want %q", c.entry, c.image, c.renter, got,
				c.want)
		}
	}
	if got := commandLine(nil, []string{"a"}); len(got) != 1 {
		t.Errorf("an image without a configuration: %q", got)
	}
}
