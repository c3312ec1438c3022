import cv2
import numpy as np
import torch

image = np.zeros((64, 64, 3), np.uint8)
cv2.circle(image, (32, 32), 20, (255, 128, 0), -1)
cv2.putText(image, "same", (4, 60), cv2.FONT_HERSHEY_SIMPLEX, 0.5, (255, 255, 255))
cv2.imwrite("image.png", image)
grey = cv2.cvtColor(cv2.imread("image.png"), cv2.COLOR_BGR2GRAY)
edges = cv2.Canny(cv2.GaussianBlur(grey, (5, 5), 0), 50, 150)
contours, _ = cv2.findContours(edges, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
small = cv2.resize(grey, (16, 16), interpolation=cv2.INTER_AREA)
print(int(edges.sum()), len(contours), int(small.sum()))
torch.manual_seed(0)
print(torch.nn.Conv2d(1, 2, 3)(torch.from_numpy(small)[None, None].float()).sum().item())
