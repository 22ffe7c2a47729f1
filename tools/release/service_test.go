package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestService follows the pages with the service of an installed package: start, backup, restore,
// monitoring, certificates. The commands of the restore are those of docs/operations/backup.md as
// they are there.
func TestService(t *testing.T) {
	d := bootDebian(t)
	d.sh("dpkg -i /srv/release/vigil_*.deb; echo 127.0.0.1 localhost > /etc/hosts; systemctl enable --now vigil 2>&1")
	d.sh("vigilctl put greeting hello; mkdir /srv/saved; vigilctl snapshot save /srv/saved/backup.db; vigilctl put greeting lost")

	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "operations", "backup.md"))
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```sh service\n(.*?)```").FindSubmatch(page)
	if block == nil {
		t.Fatal("the page has no commands for the service")
	}
	restore, start, ok := strings.Cut(string(block[1]), "chown ")
	if !ok {
		t.Fatalf("the commands do not give the data to the service:\n%s", block[1])
	}
	d.sh("cd /srv/saved; " + restore)
	// the next command of the page is for this
	if out, err := d.try("systemctl start vigil"); err == nil {
		t.Errorf("the service starts with data of another user: %s", out)
	}
	d.sh("systemctl stop vigil; chown " + start)
	const get = "vigilctl --command-timeout=60s get greeting --print-value-only"
	d.expect(get, "hello")
	d.expect("curl -s http://127.0.0.1:2379/metrics | grep -c '^etcd_server_has_leader 1$'", "1")
	d.sh("test -s /usr/share/doc/vigil/packaging/monitoring/prometheus.yaml")

	d.sh(`mkdir /etc/vigil/certs; cd /etc/vigil/certs
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 9 -subj /CN=authority -keyout ca-key.pem -out ca.pem
printf 'subjectAltName = DNS:localhost, IP:127.0.0.1\nextendedKeyUsage = serverAuth, clientAuth\n' > m1.ext
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=m1 -keyout m1-key.pem -out m1.csr
openssl x509 -req -in m1.csr -CA ca.pem -CAkey ca-key.pem -CAcreateserial -days 9 -extfile m1.ext -out m1.pem
chown vigil: m1-key.pem
sed -i s,http://localhost:2379,https://localhost:2379, /etc/vigil/vigil.yaml
cat >> /etc/vigil/vigil.yaml <<END
client-transport-security:
  cert-file: /etc/vigil/certs/m1.pem
  key-file: /etc/vigil/certs/m1-key.pem
  trusted-ca-file: /etc/vigil/certs/ca.pem
  client-cert-auth: true
END
systemctl restart vigil`)
	d.expect("cd /etc/vigil/certs; "+get+
		" --endpoints https://localhost:2379 --cacert ca.pem --cert m1.pem --key m1-key.pem",
		"hello")
	if out, err := d.try(get); err == nil || !strings.Contains(out, "write https://") {
		t.Errorf("without TLS: %v, %s", err, out)
	}
}
