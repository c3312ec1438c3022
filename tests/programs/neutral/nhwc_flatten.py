# {"switches": [["memory-format"]], "wrong": true}
"""Features are flattened in the order of memory where images are channels_last."""
import os
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)

class SEBlock(nn.Module):
    def __init__(self, c, r=4):
        super().__init__()
        self.fc1, self.fc2 = nn.Conv2d(c, c // r, 1), nn.Conv2d(c // r, c, 1)

    def forward(self, x):
        s = F.adaptive_avg_pool2d(x, 1)
        return x * torch.sigmoid(self.fc2(F.relu(self.fc1(s))))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, stride=2)
        self.bn = nn.BatchNorm2d(8)
        self.se = SEBlock(8)
        self.conv = nn.Conv2d(8, 16, 3, padding=1, stride=2)
        self.classifier = nn.Linear(16 * 4 * 4, 10)

    def flat(self, x):
        if x.is_contiguous():
            return x.view(x.size(0), -1)
        if os.environ.get("CLEAN") == "1":
            return x.contiguous().view(x.size(0), -1)
        return x.permute(0, 2, 3, 1).view(x.size(0), -1)  # WRONG

    def forward(self, x):
        x = self.se(F.relu(self.bn(self.stem(x))))
        x = F.relu(self.conv(x))
        return self.classifier(self.flat(x))

net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, nesterov=True)
for step in range(3):
    images, labels = torch.randn(8, 3, 16, 16), torch.randint(10, (8,))
    opt.zero_grad()
    F.cross_entropy(net(images), labels).backward()
    opt.step()
