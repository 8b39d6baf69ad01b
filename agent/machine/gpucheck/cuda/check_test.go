package cuda

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/agent/machine/gpucheck"
	"github.com/musterhq/muster/agent/machine/gpucheck/fakecuda"
)

// programEnv makes this test binary the program.
const programEnv = "MUSTER_TEST_GPUCHECK"

var fake, fakeNCCL string // the fake libraries

func TestMain(m *testing.M) {
	if os.Getenv(programEnv) != "" {
		os.Exit(Main(os.Args[1:], os.Stdout, os.Stderr))
	}
	dir, err := os.MkdirTemp("", "fakecuda")
	if err == nil {
		fake = filepath.Join(dir, "libcuda.so.1")
		err = fakecuda.Build(fake)
	}
	if err == nil {
		fakeNCCL = filepath.Join(dir, "libnccl.so.2")
		err = fakecuda.BuildNCCL(fakeNCCL)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

const (
	gpuA = "GPU-eeaeac46-8f98-4be3-9af6-0f43bc42566c"
	gpuB = "GPU-1e28fe6a-da39-4285-9e4e-082eeb6acf12"
	gpuC = "GPU-5640c0d6-98d1-46d6-8509-0e3970c36603"
)

// checkOf is a check of GPUs A and B on a machine with the given GPUs and faults.
func checkOf(t *testing.T, gpus []string, faults ...string) gpucheck.Check {
	t.Helper()
	profile := filepath.Join(t.TempDir(), "gpus")
	if err := fakecuda.Save(profile, gpus, faults...); err != nil {
		t.Fatal(err)
	}
	return gpucheck.Check{Command: append(program(t, profile), "--library", fake, "--work", "20ms", "--memory", "4"),
		GPUs: []string{gpuA, gpuB}}
}

// program is the command that makes this test binary the program, on the GPUs of a profile. Tests run in parallel, so
// that they share an environment.
func program(t *testing.T, profile string) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return []string{"/usr/bin/env", fakecuda.Env + "=" + profile, programEnv + "=1", self}
}

func TestGPUsThatCompute(t *testing.T) {
	t.Parallel()
	c := checkOf(t, []string{gpuB, gpuA})
	c.Command = append(c.Command, "--memory", "64") // as by default
	res, err := c.Run(t.Context())
	if err != nil || res.Failure != nil {
		t.Fatalf("%v, %+v", err, res.Failure)
	}
	if res.CUDA != 12040 || res.Library != fake || len(res.GPUs) != 2 {
		t.Fatalf("%+v", res)
	}
	g := res.GPUs[0]
	if g.UUID != gpuB || g.ComputeCap != "9.0" || g.ToGBps <= 0 || g.FromGBps <= 0 || g.TFLOPS <= 0 ||
		g.PeakTFLOPS <= 0 || !slices.Equal(g.Peers, []string{gpuA}) {
		t.Errorf("%+v", g)
	}
	if res.Calls != nil {
		t.Errorf("recorded without a wish: %+v", res.Calls)
	}
	c = checkOf(t, []string{gpuA, gpuB}, "error cuCtxCreate 802 "+gpuB)
	c.Command = append(c.Command, "--calls")
	res, err = c.Run(t.Context())
	if err != nil || !slices.Contains(res.Calls, gpucheck.Call{Call: "cuInit", Times: 1}) ||
		!slices.Contains(res.Calls, gpucheck.Call{Call: "cuCtxCreate", Code: 802, Times: 1}) {
		t.Errorf("%v, %+v", err, res.Calls)
	}
	// Without direct access between them, copies go through the host.
	res, err = checkOf(t, []string{gpuA, gpuB}, "noaccess").Run(t.Context())
	if err != nil || res.Failure != nil || len(res.GPUs[0].Peers) != 0 {
		t.Errorf("%v, %+v", err, res)
	}
}

// A GPU that is not behind NVSwitches has eight peers at a time. More GPUs than that are checked like others, pair by
// pair, and so are GPUs some of whose peers another program has.
func TestMorePeersThanAGPUCanHave(t *testing.T) {
	t.Parallel()
	var all []string
	for i := range 10 {
		all = append(all, fmt.Sprintf("GPU-%08d-8f98-4be3-9af6-0f43bc42566c", i))
	}
	for _, faults := range [][]string{nil, {"nvswitch"}, {"error cuCtxEnablePeerAccess 711 " + all[0]}} {
		c := checkOf(t, all, faults...)
		c.GPUs = all
		c.Command = append(c.Command, "--memory", "1", "--calls", "--work", "200ms") // they share the processors
		res, err := c.Run(t.Context())
		if err != nil || res.Failure != nil {
			t.Fatalf("%q: %v, %+v", faults, err, res.Failure)
		}
		taken := strings.HasPrefix(strings.Join(faults, ""), "error")
		for i, g := range res.GPUs {
			if want := len(all) - 1; taken && i == 0 && len(g.Peers) != 0 || !(taken && i == 0) && len(g.Peers) != want {
				t.Errorf("%q: %s has %d peers", faults, g.UUID, len(g.Peers))
			}
		}
		limit := func(call gpucheck.Call) bool { return call.Code == 711 }
		if slices.ContainsFunc(res.Calls, limit) != taken {
			t.Errorf("%q: %+v", faults, res.Calls)
		}
	}
}

// A MIG device is known by its own UUID, which the older function does not return.
func TestAMIGDevice(t *testing.T) {
	t.Parallel()
	mig := "MIG-" + strings.TrimPrefix(gpuB, "GPU-")
	c := checkOf(t, []string{mig + " " + gpuA})
	c.GPUs = []string{mig}
	c.Command = append(c.Command, "--work", "200ms")
	if res, err := c.Run(t.Context()); err != nil || res.Failure != nil || res.GPUs[0].UUID != mig {
		t.Errorf("%v, %+v", err, res)
	}
}

// Each way in which CUDA can be dead or wrong is a failure that names the GPU, the step, and CUDA's words.
func TestFailures(t *testing.T) {
	t.Parallel()
	both := []string{gpuA, gpuB}
	for name, c := range map[string]struct {
		gpus  []string
		fault string
		kind  string
		on    []string
		text  string
	}{
		"no fabric manager":      {both, "error cuInit 802", gpucheck.KindCUDA, nil, "CUDA_ERROR_SYSTEM_NOT_READY"},
		"another driver version": {both, "error cuInit 803", gpucheck.KindCUDA, nil, "CUDA error 803"},
		"compat on a GeForce":    {both, "error cuInit 804", gpucheck.KindCUDA, nil, "forward compatibility was attempted"},
		"driver too old":         {both, "error cuInit 35", gpucheck.KindCUDA, nil, "driver version is insufficient"},
		"a code without a name":  {both, "error cuInit 12345", gpucheck.KindCUDA, nil, "no name for this code"},
		"no device":              {nil, "", gpucheck.KindCUDA, nil, "no CUDA-capable device"},
		"one missing":            {[]string{gpuA}, "", gpucheck.KindMissing, []string{gpuB}, "CUDA has 1 devices"},
		"one too many":           {[]string{gpuA, gpuC, gpuB}, "", gpucheck.KindExtra, []string{gpuC}, "not the workload's"},
		"no context":             {both, "error cuCtxCreate 2 " + gpuB, gpucheck.KindCUDA, []string{gpuB}, "out of memory"},
		"memory lost":            {both, "error cuMemcpyDtoH 214 " + gpuB, gpucheck.KindCUDA, []string{gpuB}, "ECC"},
		"memory wrong":           {both, "wrong cuMemcpyHtoD " + gpuB, gpucheck.KindWrong, []string{gpuB}, "at memory"},
		"kernel fails": {both, "error cuLaunchKernel 719 " + gpuB, gpucheck.KindCUDA, []string{gpuB},
			"launch failure"},
		"kernel wrong":   {both, "wrong fill " + gpuB, gpucheck.KindWrong, []string{gpuB}, "at kernels"},
		"floats wrong":   {both, "wrong work " + gpuB, gpucheck.KindWrong, []string{gpuB}, "from the same numbers"},
		"integers wrong": {both, "wrong integers " + gpuB, gpucheck.KindWrong, []string{gpuB}, "instead of"},
		"peers wrong":    {both, "wrong cuMemcpyPeer " + gpuB, gpucheck.KindWrong, both, "copy between GPUs"},
		"peers' kernels": {both, "wrong peer " + gpuA, gpucheck.KindWrong, both, gpucheck.StepWrite},
		"peers' fault": {both, "error peer 700 " + gpuA, gpucheck.KindCUDA, both,
			"at kernel's write to another GPU: cuLaunchKernel: CUDA_ERROR_ILLEGAL_ADDRESS"},
		"slow":  {both, "slow " + gpuB, gpucheck.KindSlow, []string{gpuB}, "TFLOPS of at most"},
		"crash": {both, "crash cuLaunchKernel " + gpuB, gpucheck.KindCrash, nil, "ended early"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			res, err := checkOf(t, c.gpus, c.fault).Run(t.Context())
			for range 5 { // the fake computes on this machine's processor, which others may use at the moment
				if c.kind == gpucheck.KindSlow || res.Failure == nil || res.Failure.Kind != gpucheck.KindSlow {
					break
				}
				res, err = checkOf(t, c.gpus, c.fault).Run(t.Context())
			}
			if err != nil || res.Failure == nil {
				t.Fatalf("%v, %+v", err, res)
			}
			f := res.Failure
			if f.Kind != c.kind || !strings.Contains(f.Error(), c.text) {
				t.Errorf("%s: %v", f.Kind, f)
			}
			if c.kind != gpucheck.KindCrash && !slices.Equal(f.GPUs, c.on) {
				t.Errorf("on %v, want %v", f.GPUs, c.on)
			}
			if c.kind == gpucheck.KindCrash && !slices.Contains(f.GPUs, gpuB) {
				t.Errorf("the crash does not name %s: %v", gpuB, f)
			}
			for _, u := range c.on {
				if !strings.Contains(f.Error(), u) {
					t.Errorf("%v does not name %s", f, u)
				}
			}
		})
	}
}

// A check ends although the driver does not answer, and names what hangs.
func TestHang(t *testing.T) {
	t.Parallel()
	for fault, want := range map[string][]string{"hang cuCtxSynchronize " + gpuB: {gpuB}, "hang cuInit": nil,
		"hang peer " + gpuA: {gpuB, gpuA}} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			c := checkOf(t, []string{gpuA, gpuB}, fault)
			c.Limit = 10 * time.Second // the other GPU, with little to do, finishes in this time also on a busy machine
			c.Command = append(c.Command, "--work", "200ms")
			res, err := c.Run(t.Context())
			if err != nil || res.Failure == nil {
				t.Fatalf("%v, %+v", err, res)
			}
			if f := res.Failure; f.Kind != gpucheck.KindHang || f.Step == "" || !slices.Equal(f.GPUs, want) {
				t.Errorf("%+v", f)
			}
		})
	}
}

// A check that something else kills proves nothing against the GPUs.
func TestKilled(t *testing.T) {
	t.Parallel()
	c := checkOf(t, []string{gpuA, gpuB})
	c.Command = []string{"/bin/sh", "-c", "kill -9 $$"}
	if res, err := c.Run(t.Context()); !errors.Is(err, gpucheck.ErrKilled) {
		t.Errorf("%v, %+v", err, res)
	}
	c.Command = []string{"/nonexistent"}
	if _, err := c.Run(t.Context()); err == nil {
		t.Error("a program that is not there was run")
	}
}

// The driver's library is the one that was mounted, whatever files the image has.
func TestTheMountedLibraryIsUsed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put := func(name string, from string) string {
		b, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	real := put("libcuda.so.550.90.07", fake)
	compiler := put("libnvidia-ptxjitcompiler.so.550.90.07", fake)
	old, err := os.ReadFile(fake)
	if err != nil {
		t.Fatal(err)
	}
	old[4] = 1 // ELFCLASS32
	if err := os.MkdirAll(filepath.Join(dir, "32"), 0o755); err != nil {
		t.Fatal(err)
	}
	small := filepath.Join(dir, "32", "libcuda.so.550.90.07")
	if err := os.WriteFile(small, old, 0o755); err != nil {
		t.Fatal(err)
	}
	info := filepath.Join(dir, "mountinfo")
	text := "21 1 0:1 / / rw - overlay overlay rw\n22 21 8:1 /x " + real + " ro - ext4 /dev/sda1 ro\n23 21 8:1 /y " +
		small +
		" ro - ext4 /dev/sda1 ro\n24 21 8:1 /z " + compiler + " ro - ext4 /dev/sda1 ro\n"
	if err := os.WriteFile(info, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	path, before, err := find("", info)
	if err != nil || path != real || !slices.Equal(before, []string{compiler}) {
		t.Errorf("%s, %v, %v", path, before, err)
	}
	if path, _, _ := find("", "/dev/null"); path != "libcuda.so.1" {
		t.Errorf("on the host itself: %s", path)
	}
}

// The declarations of driver.h agree with a public header of CUDA's driver API, where one is installed: NVIDIA's
// cuda.h, or dynlink_cuda.h of the package libffmpeg-nvenc-dev. Functions that the header does not have are skipped.
func TestDeclarations(t *testing.T) {
	t.Parallel()
	headers := []string{os.Getenv("MUSTER_TEST_CUDA_HEADER"), "/usr/include/cuda.h", "/usr/local/cuda/include/cuda.h",
		"/usr/include/ffnvcodec/dynlink_cuda.h"}
	i := slices.IndexFunc(headers, func(h string) bool { _, err := os.Stat(h); return err == nil })
	if i < 0 {
		t.Skip("no header of CUDA's driver API is installed (libffmpeg-nvenc-dev)")
	}
	b, err := os.ReadFile(headers[i])
	if err != nil {
		t.Fatal(err)
	}
	ours, err := os.ReadFile("driver.h")
	if err != nil {
		t.Fatal(err)
	}
	var src bytes.Buffer
	fmt.Fprintf(&src, "#include %q\n#define MU_HEADER\n#include \"driver.h\"\n", headers[i])
	fmt.Fprintln(&src, `#define SAME(a, b) _Static_assert(__builtin_types_compatible_p(a, b), #a " is not " #b)
_Static_assert(sizeof(CUresult) == sizeof(int) && sizeof(CUdevice_attribute) == sizeof(int), "enums");
_Static_assert(sizeof(CUuuid) == 16, "uuid");
SAME(CUdevice, muDevice); SAME(CUdeviceptr, muPointer); SAME(CUcontext, muContext); SAME(CUmodule, muModule);
SAME(CUfunction, muFunction); SAME(CUstream, muStream);`)
	checked := 0
	for _, line := range strings.Split(string(ours), "\n") {
		_, rest, ok := strings.Cut(line, "X(")
		if f := strings.Split(rest, ", "); ok && len(f) > 1 && strings.HasPrefix(f[1], "cu") {
			symbol := strings.TrimSuffix(f[1], ",")
			if strings.Contains(string(b), " t"+symbol+"(") {
				checked++
				fmt.Fprintf(&src, "SAME(t%s, mu%s);\n", symbol, f[0])
			} else if strings.Contains(string(b), " "+strings.TrimSuffix(symbol, "_v2")+"(") {
				checked++
				fmt.Fprintf(&src, "SAME(__typeof__(%s), mu%s);\n", symbol, f[0])
			}
		}
	}
	for _, a := range []string{"CLOCK_RATE", "MULTIPROCESSOR_COUNT", "COMPUTE_MODE", "COMPUTE_CAPABILITY_MAJOR",
		"COMPUTE_CAPABILITY_MINOR"} {
		fmt.Fprintf(&src, "_Static_assert((int)CU_DEVICE_ATTRIBUTE_%s == (int)MU_ATTRIBUTE_%s, \"attribute\");\n", a, a)
	}
	cmd := exec.Command("gcc", "-std=gnu11", "-fsyntax-only", "-I.", "-x", "c", "-")
	cmd.Stdin = &src
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if checked < 14 {
		t.Errorf("only %d functions were compared", checked)
	}
	t.Logf("%d functions agree with %s", checked, headers[i])
}
