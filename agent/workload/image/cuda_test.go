package image

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/musterhq/muster/internal/agentapi"
)

func TestImagesNewerThanTheDriverAreRefused(t *testing.T) {
	t.Parallel()
	nvidia := "NVIDIA_REQUIRE_CUDA=cuda>=12.6 brand=tesla,driver>=470,driver<471 brand=unknown,driver>=535,driver<536"
	for _, c := range []struct {
		name   string
		driver Driver
		config v1.Config
		ok     bool
	}{
		{"as new as needed", Driver{Version: "560.28.03", CUDA: "12.6"}, v1.Config{Env: []string{nvidia}}, true},
		{"newer than needed", Driver{Version: "575.1", CUDA: "13.0"}, v1.Config{Env: []string{nvidia}}, true},
		{"older", Driver{Version: "550.90.07", CUDA: "12.4"}, v1.Config{Env: []string{nvidia}}, false},
		{"older, of a branch with forward compatibility", Driver{
			Version: "535.183.01",
			CUDA:    "12.2",
		}, v1.Config{Env: []string{nvidia}},
			true},
		{"older, on a GeForce", Driver{Version: "470.1", CUDA: "11.4", Models: []string{"NVIDIA GeForce RTX 4090"}},
			v1.Config{Env: []string{nvidia}}, false},
		{"older, in a data centre", Driver{Version: "470.1", CUDA: "11.4", Models: []string{"NVIDIA A100-SXM4-80GB"}},
			v1.Config{Env: []string{nvidia}}, true},
		{"older, of a brand that is not known", Driver{Version: "470.1", CUDA: "11.4", Models: []string{"NVIDIA Abacus"}},
			v1.Config{Env: []string{nvidia}}, true},
		{"a driver", Driver{
			Version: "550.90.07",
			CUDA:    "12.4",
		}, v1.Config{Env: []string{"NVIDIA_REQUIRE_DRIVER=driver>=560"}}, false},
		{"a range", Driver{
			Version: "550.90.07",
			CUDA:    "12.4",
		}, v1.Config{Env: []string{"NVIDIA_REQUIRE_CUDA=cuda>=12.0,cuda<12.4"}}, false},
		{"switched off", Driver{
			Version: "550.90.07",
			CUDA:    "12.4",
		}, v1.Config{Env: []string{nvidia, "NVIDIA_DISABLE_REQUIRE=true"}}, true},
		{"made for a newer one", Driver{
			Version: "550.90.07",
			CUDA:    "12.4",
		}, v1.Config{Env: []string{"CUDA_VERSION=12.5.1"}}, false},
		{"made for an older one", Driver{
			Version: "550.90.07",
			CUDA:    "12.4",
		}, v1.Config{Env: []string{"CUDA_VERSION=11.8.0"}}, true},
		{"labelled", Driver{
			Version: "550.90.07",
			CUDA:    "12.4",
		}, v1.Config{Labels: map[string]string{"com.nvidia.cuda.version": "13.0.0"}},
			false},
		{"nothing said", Driver{Version: "550.90.07", CUDA: "12.4"}, v1.Config{}, true},
		{"not to be read", Driver{
			Version: "550.90.07",
			CUDA:    "12.4",
		}, v1.Config{Env: []string{"NVIDIA_REQUIRE_CUDA=cuda>>latest x",
			"CUDA_VERSION=new"}}, true},
		{"no driver", Driver{}, v1.Config{Env: []string{nvidia}}, true},
	} {
		if err := c.driver.runs(c.config); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func FuzzRequirements(f *testing.F) {
	f.Add("cuda>=12.4 brand=tesla,driver>=470,driver<471")
	f.Add("cuda!=,=<>1.. ,")
	f.Fuzz(func(t *testing.T, need string) {
		d := Driver{Version: "550.90.07", CUDA: "12.4"}
		if d.meets(need) != d.meets(" "+need+" ") {
			t.Errorf("spaces around %q count", need)
		}
	})
}

func TestTheDriverIsAskedForEveryImage(t *testing.T) {
	t.Parallel()
	reg := serve(t, nil)
	e := setUp(t, reg)
	e.puller.cfg.Driver = func() Driver { return Driver{Version: "550.90.07", CUDA: "12.4"} }
	img := build(t, runtime.GOARCH, layer(t, map[string][]byte{"a": nil}))
	push(t, reg+"/cuda:13", withEnv(t, img, "NVIDIA_REQUIRE_CUDA=cuda>=13.0"))
	push(t, reg+"/cuda:12", withEnv(t, img, "NVIDIA_REQUIRE_CUDA=cuda>=12.0"))
	e.pull(Request{Image: reg + "/cuda:13"}, agentapi.ReasonImageNewerCUDA)
	e.pull(Request{Image: reg + "/cuda:12"}, "")
}

// An image that is made for CUDA is refused on a host with AMD's GPUs, before it is pulled; any other may have ROCm.
func TestCUDAImageOnAMD(t *testing.T) {
	t.Parallel()
	amd := Driver{AMD: true}
	err := amd.runs(v1.Config{Env: []string{"CUDA_VERSION=12.4.1"}})
	var refused *Error
	if !errors.As(err, &refused) || refused.Reason != agentapi.ReasonImageNewerCUDA ||
		!strings.Contains(refused.Detail, "AMD") {
		t.Errorf("%v", err)
	}
	if err := amd.runs(v1.Config{Env: []string{"PATH=/opt/rocm/bin"}}); err != nil {
		t.Error(err)
	}
}
