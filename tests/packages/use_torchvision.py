import torch
import torchvision
from torchvision.transforms import v2

torch.manual_seed(0)
data = torchvision.datasets.FakeData(12, (3, 40, 40), 3, torchvision.transforms.ToTensor(), random_offset=3)
augment = v2.Compose([v2.RandomResizedCrop(32), v2.RandomHorizontalFlip(), v2.ColorJitter(0.2)])
model = torchvision.models.squeezenet1_1(num_classes=3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for images, labels in torch.utils.data.DataLoader(data, batch_size=6, shuffle=True):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(augment(images)), labels)
    loss.backward()
    optimizer.step()
print(loss.item(), torchvision.utils.make_grid(images).shape)
torchvision.utils.save_image(images, "images.png")
print(torchvision.io.ImageReadMode.RGB.name, torchvision.tv_tensors.Image(images[0]).shape)
