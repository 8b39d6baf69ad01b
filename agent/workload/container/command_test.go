package container

import (
	"strings"
	"testing"

	dockerspec "github.com/moby/docker-image-spec/specs-go/v1"
)

func TestCommandLine_IsOfTheSpecOverTheImage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ entry, image, instead, renter, want string }{
		{"", "", "", "", ""},
		{"", "python3", "", "", "python3"},
		{"", "python3", "", "train.py now", "train.py now"},
		{"/init", "serve", "", "", "/init serve"},
		{"/init", "serve", "", "train", "/init train"},
		{"/init", "", "", "", "/init"},
		{"/init", "serve", "bash -c", "", "bash -c"}, // not "bash -c serve"
		{"/init", "serve", "bash -c", "date", "bash -c date"},
		{"", "serve", "/job", "run", "/job run"},
	} {
		img := &dockerspec.DockerOCIImageConfig{}
		img.Entrypoint, img.Cmd = strings.Fields(c.entry), strings.Fields(c.image)
		if got := strings.Join(commandLine(img, strings.Fields(c.instead), strings.Fields(c.renter)), " "); got != c.want {
			t.Errorf("%+v: runs %q", c, got)
		}
	}
	if got := commandLine(nil, nil, []string{"a"}); len(got) != 1 {
		t.Errorf("an image without a configuration: %q", got)
	}
}
