package httpbody_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/httpbody"
)

const patience = time.Minute

// form is a multipart body with one file of n bytes.
func form(n int) (contentType string, b []byte) {
	var out bytes.Buffer
	m := multipart.NewWriter(&out)
	f, _ := m.CreateFormFile("file", "x")
	_, _ = f.Write(make([]byte, n))
	_ = m.Close()
	return m.FormDataContentType(), out.Bytes()
}

func TestLargeFormsAreRefusedBeforeTheyReachTheDisk(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	files := make(chan int, 1)
	srv := httptest.NewServer(httpbody.Limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_ = r.FormValue("x")
		entries, _ := os.ReadDir(tmp)
		files <- len(entries)
		if r.MultipartForm != nil {
			_ = r.MultipartForm.RemoveAll()
		}
	}), 1<<20, patience))
	defer srv.Close()
	kind, data := form(64 << 20)
	for _, tc := range []struct {
		name, method string
		body         io.Reader
		status       int
	}{
		{"declared length", "POST", bytes.NewReader(data), http.StatusRequestEntityTooLarge},
		{"chunked", "POST", io.MultiReader(bytes.NewReader(data)), 0},
		{"on GET", "GET", bytes.NewReader(data), http.StatusBadRequest},
		{"on GET, chunked", "GET", io.MultiReader(bytes.NewReader(data)), http.StatusBadRequest},
	} {
		r, _ := http.NewRequest(tc.method, srv.URL, tc.body)
		r.Header.Set("Content-Type", kind)
		resp, err := http.DefaultClient.Do(r)
		if err == nil { // the server may close while we send
			resp.Body.Close()
			if tc.status != 0 && resp.StatusCode != tc.status {
				t.Errorf("%s: %d, want %d", tc.name, resp.StatusCode, tc.status)
			}
		}
		select {
		case n := <-files:
			if n > 0 {
				t.Errorf("%s: %d files were written", tc.name, n)
			}
		default:
		}
	}
}

// TestABodyThatStopsEndsItsHandler and one that is read in time does not end it, however long it works afterwards.
func TestABodyThatStopsEndsItsHandler(t *testing.T) {
	t.Parallel()
	read := make(chan error, 1)
	srv := httptest.NewServer(httpbody.Limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		if err == nil {
			select {
			case <-r.Context().Done(): // the deadline would look like a client that left
				err = r.Context().Err()
			case <-time.After(300 * time.Millisecond):
			}
		}
		read <- err
	}), 1<<20, 100*time.Millisecond))
	defer srv.Close()
	for body, fails := range map[string]bool{"whole": false, "half": true} {
		c, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n%s", body)
		select {
		case err := <-read:
			if (err != nil) != fails {
				t.Errorf("%s: %v", body, err)
			}
		case <-time.After(patience):
			t.Fatalf("%s: the handler still waits", body)
		}
	}
}

func TestPassedOnBodiesMayBeLargeButNotIdle(t *testing.T) {
	t.Parallel()
	type outcome struct {
		n   int64
		err error
	}
	read := make(chan outcome, 1)
	srv := httptest.NewServer(httpbody.LimitIdle(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		read <- outcome{n, err}
	}), 200*time.Millisecond))
	defer srv.Close()
	resp, err := http.Post(srv.URL, "application/octet-stream", strings.NewReader(strings.Repeat("x", 8<<20)))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if o := <-read; o.err != nil || o.n != 8<<20 {
		t.Error(o)
	}
	c, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nha")
	select {
	case o := <-read:
		if o.err == nil {
			t.Error("read whole")
		}
	case <-time.After(patience):
		t.Fatal("the handler still waits")
	}
	_, _ = bufio.NewReader(c).ReadString('\n')
}

// A handler that reads once more after the end of a body, as decoders do, is not taken for one whose client has left.
func TestReadingPastTheEndKeepsTheRequest(t *testing.T) {
	t.Parallel()
	const idle = 50 * time.Millisecond
	over := make(chan error, 1)
	srv := httptest.NewServer(httpbody.LimitIdle(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		for range 2 {
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				over <- err
				return
			}
		}
		select {
		case <-r.Context().Done():
			over <- r.Context().Err()
		case <-time.After(10 * idle):
			over <- nil
		}
	}), idle))
	defer srv.Close()
	resp, err := http.Post(srv.URL, "text/plain", strings.NewReader("whole"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if err := <-over; err != nil {
		t.Error(err)
	}
}

// smallBuffers gives connections small receive buffers, so that what the server does not read stays with the client.
type smallBuffers struct{ net.Listener }

func (l smallBuffers) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetReadBuffer(32 << 10)
	}
	return c, err
}

// A client that sends its whole body before it reads the answer, as most do, reads why the body was refused.
func TestRefusedBodyIsAnswered(t *testing.T) {
	t.Parallel()
	const limit = 2 << 20
	for _, tc := range []struct {
		name, header string
		size         int
		reads        int64 // by the handler, before it answers 413
	}{
		{"declared length", fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", 2*limit), 2 * limit, 0},
		{"chunked", fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n", 2*limit),
			2 * limit, 4 * limit},
		{"the handler's own limit", fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", limit), limit,
			64 << 10},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			srv := httptest.NewUnstartedServer(httpbody.Limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.CopyN(io.Discard, r.Body, tc.reads)
				http.Error(w, "too large", http.StatusRequestEntityTooLarge)
			}), limit, patience))
			srv.Listener = smallBuffers{srv.Listener}
			srv.Start()
			defer srv.Close()
			c, err := net.Dial("tcp", srv.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_ = c.(*net.TCPConn).SetWriteBuffer(32 << 10)
			if _, err := c.Write(append([]byte(tc.header), make([]byte, tc.size)...)); err != nil {
				t.Fatalf("send the body: %v", err)
			}
			if strings.Contains(tc.header, "chunked") {
				fmt.Fprint(c, "\r\n0\r\n\r\n")
			}
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatalf("read the answer: %v", err)
			}
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusRequestEntityTooLarge {
				t.Errorf("%s, want 413", resp.Status)
			}
		})
	}
}

// A client that never stops sending is cut off.
func TestEndlessBodyIsCut(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(httpbody.Limit(http.NotFoundHandler(), 1<<20, patience))
	defer srv.Close()
	c, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000000\r\n\r\n")
	piece := make([]byte, 1<<20)
	for n := 0; err == nil; n++ {
		if n > 1000 {
			t.Fatal("the server goes on reading")
		}
		_, err = c.Write(piece)
	}
	if os.IsTimeout(err) {
		t.Error("the server neither reads nor closes the connection")
	}
}
