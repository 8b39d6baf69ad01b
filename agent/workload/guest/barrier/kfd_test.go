package barrier

import (
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/musterhq/muster/agent/machine/gpucheck"
)

// A device that is not KFD does not know its request. (That KFD answers it, no test shows: it takes AMD's driver.)
func TestWhatIsNotKFDDoesNotAnswer(t *testing.T) {
	t.Parallel()
	if kfdGetVersion != 0x80084b01 { // AMDKFD_IOC_GET_VERSION, as strace shows it
		t.Errorf("%#x", uintptr(kfdGetVersion))
	}
	f, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := kfdAnswers(int(f.Fd())); !errors.Is(err, syscall.ENOTTY) {
		t.Errorf("%v", err)
	}
}

func TestCheckDevices(t *testing.T) {
	t.Parallel()
	if res := CheckDevices([]string{"/dev/null", "/dev/zero"}); res.Failure != nil ||
		!slices.Equal(res.Opened, []string{"/dev/null", "/dev/zero"}) {
		t.Errorf("%+v", res)
	}
	res := CheckDevices([]string{"/dev/null", "/dev/dri/renderD999"})
	if res.Failure == nil || res.Failure.Kind != gpucheck.KindMissing || len(res.Opened) != 0 ||
		!strings.Contains(res.Failure.Text, "renderD999") {
		t.Errorf("%+v", res)
	}
}
