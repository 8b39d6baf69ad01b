package market

import (
	"regexp"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/musterhq/muster/internal/fault"
)

const maxImage = 512 // bytes

func (s Spec) checkImage(bad *fault.Fields) {
	if s.Image == "" {
		bad.Add("image", "name a container image, such as pytorch/pytorch:2.4.0")
		return
	}
	const want = "want [registry/]repository[:tag][@sha256:digest]"
	if _, err := name.ParseReference(s.Image); len(s.Image) <= maxImage && err == nil &&
		!strings.Contains(s.Image, "://") && !strings.HasPrefix(s.Image, "/") {
		return
	}
	if plain := plainImage(s.Image); plain != "" {
		bad.Add("image", "is not an image reference: write %s", plain)
		return
	}
	bad.Add("image", "is not an image reference: %s", want)
}

var (
	imageScheme = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://`)
	// hubPage is the address of an image's page on Docker Hub, without the scheme.
	hubPage = regexp.MustCompile(`^hub\.docker\.com/(?:r/|_/)([^/?#]+(?:/[^/?#]+)?)(?:/?|/tags.*|[?#].*)$`)
)

// plainImage returns the reference that is meant by an image as other tools write it: with a scheme (docker://x/y:1),
// with # after the registry (nvcr.io#nvidia/pytorch:24.05), or as the address of a page of Docker Hub. It returns "" if
// there is none.
func plainImage(image string) string {
	rest := imageScheme.ReplaceAllString(image, "")
	if page := hubPage.FindStringSubmatch(rest); page != nil {
		rest = page[1]
	} else if registry, path, ok := strings.Cut(rest, "#"); ok && !strings.Contains(registry, "/") {
		rest = registry + "/" + path
	}
	rest = strings.TrimRight(rest, "/")
	if _, err := name.ParseReference(rest); err != nil || rest == image || len(rest) > maxImage ||
		strings.Contains(rest, "://") || strings.HasPrefix(rest, "/") {
		return ""
	}
	return rest
}
