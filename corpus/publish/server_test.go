package publish

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// begin starts a server process of the test's own, which listens on port, and ends
// it with the test. Without the program the test is skipped.
func begin(t *testing.T, port int, name string, args ...string) {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skip(name + " is not installed")
	}
	cmd := exec.Command(path, args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	for from := time.Now(); time.Since(from) < 20*time.Second; time.Sleep(20 * time.Millisecond) {
		if c, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", port)); err == nil {
			c.Close()
			return
		}
	}
	t.Fatalf("%s does not answer", name)
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// startS3 starts Versity's S3 gateway over a folder, with one bucket, and sets the
// environment's credentials to its. objects is the folder of the bucket's objects.
func startS3(t *testing.T) (endpoint, objects string) {
	t.Helper()
	port, dir := freePort(t), t.TempDir()
	objects = filepath.Join(dir, "root", "pictures")
	for _, d := range []string{objects, filepath.Join(dir, "meta")} {
		if err := os.MkdirAll(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv(s3ID, "the-id")
	t.Setenv(s3Key, "canary-key-of-s3")
	t.Setenv(s3Region, "us-east-1")
	begin(t, port, "versitygw", "--access", "the-id", "--secret", "canary-key-of-s3", "--port", fmt.Sprint("127.0.0.1:", port),
		"posix", "--sidecar", filepath.Join(dir, "meta"), filepath.Join(dir, "root"))
	return fmt.Sprint("http://127.0.0.1:", port), objects
}

// startPut starts nginx as a server that takes PUT from whoever has the token.
func startPut(t *testing.T) (address, objects string) {
	t.Helper()
	port, dir := freePort(t), t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	objects = filepath.Join(dir, "files")
	if err := os.Mkdir(objects, 0o777); err != nil {
		t.Fatal(err)
	}
	conf := fmt.Sprintf(`daemon off; master_process off; pid %[1]s/pid; error_log %[1]s/log;
events {}
http {
  types { image/png png; } access_log off; client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/1; fastcgi_temp_path %[1]s/2; uwsgi_temp_path %[1]s/3; scgi_temp_path %[1]s/4;
  map "$request_method $http_authorization" $refused { default 0; "~^PUT Bearer canary-of-put$" 0; "~^PUT" 1; }
  server {
    listen 127.0.0.1:%[2]d; root %[1]s/files;
    location / { if ($refused) { return 403; } dav_methods PUT; create_full_put_path on; client_max_body_size 1g; }
  }
}`, dir, port)
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(conf), 0o666); err != nil {
		t.Fatal(err)
	}
	begin(t, port, "nginx", "-p", dir, "-e", filepath.Join(dir, "log"), "-c", file)
	return fmt.Sprint("http://127.0.0.1:", port, "/pictures"), filepath.Join(objects, "pictures")
}
