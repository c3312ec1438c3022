import http.server
import json
import threading

import requests
import torch


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"path": self.path, "rows": [0.5, 1.5, 2.5]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
with requests.Session() as session:
    session.trust_env = False
    answer = session.get(f"http://127.0.0.1:{server.server_port}/rows", params={"page": 2}, timeout=30)
server.shutdown()
print(answer.status_code, answer.json())
torch.manual_seed(0)
print(torch.nn.Linear(3, 1)(torch.tensor(answer.json()["rows"])).item())
